"""Real graphs, real threads: many callers, a third of whom go away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import numpy as np
import pytest

from export.bundle import Bundle, Precision
from service.config import SchedulerConfig
from service.core import EngineCore
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.engine_workers import EngineThreads
from service.request import Hypothesis, Outcome, Sequence
from tests.asynchronous import run_async
from tests.builders import make_sequence
from tests.fakes import CollectingObserver

NUM_CALLERS = 24
NUM_SOURCES = 12


@pytest.fixture(scope="module")
def engine(random_bundle: Callable[[Precision], Bundle]) -> OnnxEngine:
    return load_onnx_engine(random_bundle("int8"))


def create(engine: OnnxEngine, observer: CollectingObserver, num_workers: int) -> EngineCore:
    config = SchedulerConfig(max_batch_rows=32, max_encode_tokens=64)
    return EngineCore(
        name="m",
        workers=EngineThreads(model="m", engine=engine, config=config, num_workers=num_workers),
        config=config,
        observer=observer,
    )


def make(source: tuple[int, ...], beam_size: int, request_id: str) -> Sequence:
    return make_sequence(source, beam_size=beam_size, max_length=25, request_id=request_id)


async def collect(core: EngineCore, sequences: list[Sequence]) -> dict[int, Hypothesis]:
    found = {}
    async for result in core.stream(sequences):
        assert result.outcome is Outcome.FINISHED
        found[result.sequence_id] = result.hypotheses[0]
    return found


async def storm(engine: OnnxEngine) -> None:
    rng = np.random.default_rng(1)
    sources = [
        (*rng.integers(2, engine.facts.vocab_size, size=rng.integers(1, 20)).tolist(), 0)
        for _ in range(NUM_SOURCES)
    ]
    observer = CollectingObserver()
    core = create(engine, observer, num_workers=2)
    core.start()
    expected = {}
    for source in sources:
        for beam_size in (1, 2, 4, 8):
            (answer,) = (await collect(core, [make(source, beam_size, "alone")])).values()
            expected[source, beam_size] = answer

    async def caller(number: int) -> int:
        chance = random.Random(number)
        answers = 0
        for turn in range(4):
            sequences = [
                make(chance.choice(sources), chance.choice((1, 2, 4, 8)), f"{number}.{turn}")
                for _ in range(chance.choice((1, 1, 5)))
            ]
            task = asyncio.create_task(collect(core, sequences))
            if chance.random() < 1 / 3:
                await asyncio.sleep(chance.random() / 50)
                task.cancel()
                await asyncio.wait([task])
                continue
            found = await task
            answers += len(found)
            for sequence in sequences:
                key = (sequence.source_ids, sequence.options.beam_size)
                assert found[sequence.sequence_id] == expected[key]
        return answers

    try:
        answers = await asyncio.gather(*map(caller, range(NUM_CALLERS)))
        (again,) = (await collect(core, [make(sources[0], 4, "after")])).values()
        assert again == expected[sources[0], 4]
        assert await core.drain(20)
    finally:
        core.stop()
    assert sum(answers) > 0
    assert any(stats.outcome is Outcome.CANCELLED for stats in observer.sequences)
    last = observer.gauges[-1]
    assert (last.queue_depth, last.running_sequences, last.running_rows) == (0, 0, 0)
    assert last.kv_cache_bytes == 0


def test_after_a_storm_of_callers_who_go_away_nothing_is_held(engine: OnnxEngine) -> None:
    run_async(lambda: storm(engine))()
