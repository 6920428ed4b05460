"""The core with real threads under random arrivals and cancellations."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from service.config import SchedulerConfig
from service.core import EngineCore
from service.engine_workers import EngineThreads
from service.request import Outcome, Sequence
from tests.builders import make_sequence
from tests.fakes import CollectingObserver, FakeEngine, random_script

V = 12
LIMITS = SchedulerConfig(max_batch_rows=24, max_encode_tokens=20)

calls = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 4])), min_size=1, max_size=6),
        st.none() | st.integers(0, 6),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=10,
)
"""Of each call: its sentences (length, beam), after how many results it is cancelled, and when it begins."""


async def call(
    core: EngineCore, sequences: list[Sequence], results_wanted: int | None, delay: int
) -> list[int]:
    """Take some or all results of a call, and close it."""
    await asyncio.sleep(delay / 5000)
    ids: list[int] = []
    stream = core.stream(sequences)
    try:
        async for result in stream:
            assert result.outcome is Outcome.FINISHED
            ids.append(result.sequence_id)
            if results_wanted is not None and len(ids) >= results_wanted:
                break
    finally:
        await stream.aclose()
    return ids


async def storm(
    items: list[tuple[list[tuple[int, int]], int | None, int]], num_workers: int
) -> None:
    observer = CollectingObserver()
    engine = FakeEngine(random_script(V, sharpness=1.0), vocab_size=V)
    core = EngineCore(
        name="m",
        workers=EngineThreads(model="m", engine=engine, config=LIMITS, num_workers=num_workers),
        config=LIMITS,
        observer=observer,
    )
    core.start()
    try:
        batches = [
            [
                make_sequence((1,) * length, beam_size=beam, request_id=str(index))
                for length, beam in sentences
            ]
            for index, (sentences, _, _) in enumerate(items)
        ]
        answered = await asyncio.gather(
            *(
                call(core, sequences, wanted, delay)
                for sequences, (_, wanted, delay) in zip(batches, items, strict=True)
            )
        )
        assert await core.drain(10)
    finally:
        core.stop()
    check(batches, answered, items, observer, engine)


def check(
    batches: list[list[Sequence]],
    answered: list[list[int]],
    items: list[tuple[list[tuple[int, int]], int | None, int]],
    observer: CollectingObserver,
    engine: FakeEngine,
) -> None:
    for sequences, ids, (_, wanted, _) in zip(batches, answered, items, strict=True):
        assert set(ids) <= {sequence.sequence_id for sequence in sequences}
        assert len(set(ids)) == len(ids)
        if wanted is None:
            assert len(ids) == len(sequences)
    outcomes = Counter(stats.outcome for stats in observer.sequences)
    assert outcomes.total() == sum(map(len, batches))
    assert outcomes[Outcome.FINISHED] >= sum(map(len, answered))
    assert set(outcomes) <= {Outcome.FINISHED, Outcome.CANCELLED}
    last = observer.gauges[-1]
    assert (last.queue_depth, last.running_sequences, last.running_rows) == (0, 0, 0)
    assert last.kv_cache_bytes == 0
    assert all(stats.num_rows <= LIMITS.max_batch_rows for stats in observer.steps)
    assert all(decoder.num_rows == 0 for decoder in engine.decoders)


@given(items=calls, num_workers=st.integers(1, 3))
@settings(max_examples=30)
def test_after_any_storm_nothing_is_held_and_everybody_has_an_answer(
    items: list[tuple[list[tuple[int, int]], int | None, int]], num_workers: int
) -> None:
    asyncio.run(asyncio.wait_for(storm(items, num_workers), 30))
