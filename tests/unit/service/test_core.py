from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from service.config import SchedulerConfig
from service.core import EngineCore
from service.engine_workers import EngineThreads
from service.errors import (
    DeadlineError,
    DrainingError,
    EngineDeadError,
    EngineStepError,
    InvalidRequestError,
    OverloadedError,
)
from service.request import Outcome, Sequence, SequenceResult
from service.scheduler.lanes import Lane
from tests.asynchronous import run_async
from tests.builders import make_sequence
from tests.fakes import (
    EOS,
    CollectingObserver,
    FakeDecoder,
    FakeEngine,
    copy_script,
    failing_once,
)

V = 16


@asynccontextmanager
async def running(
    engine: FakeEngine | None = None,
    *,
    num_workers: int = 1,
    observer: CollectingObserver | None = None,
    on_death: Callable[[EngineDeadError], None] | None = None,
    **limits: Any,
) -> AsyncIterator[EngineCore]:
    config = SchedulerConfig(**limits)
    core = EngineCore(
        name="m",
        workers=EngineThreads(
            model="m",
            engine=engine or FakeEngine(copy_script(V), vocab_size=V),
            config=config,
            num_workers=num_workers,
        ),
        config=config,
        observer=observer or CollectingObserver(),
        on_death=on_death,
    )
    core.start()
    try:
        yield core
    finally:
        core.stop()


async def collect(core: EngineCore, sequences: list[Sequence]) -> dict[int, SequenceResult]:
    results: dict[int, SequenceResult] = {}
    async for result in core.stream(sequences):
        assert result.sequence_id not in results
        results[result.sequence_id] = result
    return results


def admitted_by_workers(engine: FakeEngine) -> list[int]:
    """How many sentences each worker translated, ascending."""
    counts = [decoder.num_admitted for decoder in engine.decoders]
    firsts = range(0, len(counts), len(Lane))  # a decoder for each lane
    return sorted(sum(counts[first : first + len(Lane)]) for first in firsts)


class Gate:
    """Holds decoder steps until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, decoder: FakeDecoder) -> None:
        self.reached.set()
        assert self._open.wait(10)

    def open(self) -> None:
        self._open.set()


def endless(**options: Any) -> Sequence:
    return make_sequence((1, 2), max_length=100_000, min_target_tokens=100_000, **options)


@run_async
async def test_every_sentence_gets_one_result() -> None:
    async with running(num_workers=2) as core:
        sequences = [make_sequence((n, n, EOS)) for n in range(1, 15)]
        results = await collect(core, sequences)
        assert [results[s.sequence_id].hypotheses[0].token_ids for s in sequences] == [
            (n, n) for n in range(1, 15)
        ]
        assert core.num_outstanding == 0


@run_async
async def test_results_come_as_they_finish() -> None:
    async with running() as core:
        long, short = make_sequence((1,) * 9 + (EOS,)), make_sequence((2, EOS))
        order = [result.sequence_id async for result in core.stream([long, short])]
        assert order == [short.sequence_id, long.sequence_id]


@run_async
async def test_no_sentences_need_no_engine() -> None:
    async with running() as core:
        assert await collect(core, []) == {}


@run_async
async def test_closing_the_stream_frees_everything_within_a_step() -> None:
    observer = CollectingObserver()
    engine = FakeEngine(vocab_size=V)
    async with running(engine, observer=observer) as core:
        stream = core.stream([endless(), make_sequence((1, EOS), max_length=2), endless()])
        first = await anext(stream)
        assert first.outcome is Outcome.FINISHED
        await stream.aclose()
        assert await core.drain(10)
        assert engine.decoders[0].num_rows == 0
    last = observer.gauges[-1]
    assert (last.queue_depth, last.running_sequences, last.running_rows) == (0, 0, 0)
    assert last.kv_cache_bytes == 0
    outcomes = sorted(stats.outcome.value for stats in observer.sequences)
    assert outcomes == ["cancelled", "cancelled", "finished"]


@run_async
async def test_cancelling_who_waits_aborts() -> None:
    async with running(FakeEngine(vocab_size=V)) as core:
        task = asyncio.create_task(collect(core, [endless()]))
        while core.num_waiting or not core.num_outstanding:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await core.drain(10)
        assert core.num_outstanding == 0


@run_async
async def test_a_full_queue_refuses_at_the_door() -> None:
    gate = Gate()
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=gate)
    async with running(engine, max_queue_sequences=3, max_batch_rows=4) as core:
        running_task = asyncio.create_task(collect(core, [make_sequence((1, EOS))]))
        await asyncio.to_thread(gate.reached.wait, 10)
        waiting = asyncio.create_task(
            collect(core, [make_sequence((1, EOS)), make_sequence((1, EOS))])
        )
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError) as caught:
            await collect(core, [make_sequence((1, EOS)), make_sequence((1, EOS))])
        assert caught.value.retry_after_seconds > 0
        gate.open()
        assert len(await running_task) == 1
        assert len(await waiting) == 2


@run_async
async def test_what_was_cancelled_in_the_queue_leaves_its_room_at_once() -> None:
    gate = Gate()
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=gate)
    async with running(engine, max_queue_sequences=3, max_batch_rows=4) as core:
        running_task = asyncio.create_task(collect(core, [make_sequence((1, EOS))]))
        await asyncio.to_thread(gate.reached.wait, 10)
        stream = core.stream([make_sequence((1, EOS)), make_sequence((1, EOS))])
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        assert core.num_waiting == 3  # the first has not been told to have joined
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await stream.aclose()
        assert core.num_waiting == 1
        later = asyncio.create_task(collect(core, [make_sequence((1, EOS))]))
        await asyncio.sleep(0)
        assert core.num_waiting == 2
        gate.open()
        assert len(await running_task) == 1
        assert len(await later) == 1
        assert await core.drain(10)
        assert core.num_waiting == 0


@run_async
async def test_a_request_larger_than_the_queue_is_told_so() -> None:
    async with running(max_queue_sequences=3) as core:
        with pytest.raises(InvalidRequestError, match="at most 3 sentences"):
            await collect(core, [make_sequence() for _ in range(4)])


@run_async
async def test_a_sentence_that_can_never_fit_is_refused() -> None:
    async with running(max_batch_rows=4) as core:
        with pytest.raises(InvalidRequestError, match="`beam_size` 5"):
            await collect(core, [make_sequence(beam_size=4), make_sequence(beam_size=5)])
        assert core.num_outstanding == 0


@run_async
async def test_a_deadline_that_has_passed_is_refused_at_once() -> None:
    async with running() as core:
        with pytest.raises(DeadlineError):
            await collect(core, [make_sequence(deadline=0.0)])
        assert core.num_outstanding == 0


@run_async
async def test_a_deadline_ends_a_sentence_that_runs() -> None:
    async with running(FakeEngine(vocab_size=V)) as core:
        (result,) = (await collect(core, [endless(deadline=time.monotonic() + 0.05)])).values()
        assert result.outcome is Outcome.EXPIRED
        assert isinstance(result.error, DeadlineError)


@run_async
async def test_a_deadline_that_the_queue_cannot_keep_is_refused_at_once() -> None:
    def slow(decoder: FakeDecoder) -> None:
        time.sleep(0.002)

    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=slow)
    async with running(engine, max_batch_rows=4) as core:
        known = [make_sequence((1, 2, 3, EOS)) for _ in range(3)]
        assert len(await collect(core, known)) == 3
        others = [
            asyncio.create_task(collect(core, [make_sequence((1,) * 30, request_id=str(i))]))
            for i in range(40)
        ]
        await asyncio.sleep(0.01)
        with pytest.raises(DeadlineError, match="the queue needs"):
            await collect(core, [make_sequence(deadline=time.monotonic() + 0.03)])
        patient = make_sequence((5, EOS), deadline=time.monotonic() + 60, request_id="patient")
        waiting = asyncio.create_task(collect(core, [patient]))
        await asyncio.sleep(0)
        for other in others:
            other.cancel()
        assert len(await waiting) == 1


@run_async
async def test_draining_takes_nothing_new_and_finishes_what_runs() -> None:
    gate = Gate()
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=gate)
    async with running(engine) as core:
        task = asyncio.create_task(collect(core, [make_sequence((1, EOS))]))
        await asyncio.to_thread(gate.reached.wait, 10)
        assert not await core.drain(0.01)
        with pytest.raises(DrainingError):
            await collect(core, [make_sequence()])
        gate.open()
        assert await core.drain(10)
        assert len(await task) == 1


@run_async
async def test_an_idle_core_is_drained_at_once() -> None:
    async with running() as core:
        assert await core.drain(0.0)


@run_async
async def test_stopping_answers_who_still_waits() -> None:
    async with running(FakeEngine(vocab_size=V)) as core:
        task = asyncio.create_task(collect(core, [endless()]))
        while core.num_waiting or not core.num_outstanding:
            await asyncio.sleep(0)
        core.stop()
        (result,) = (await task).values()
        assert result.outcome is Outcome.CANCELLED
        assert isinstance(result.error, DrainingError)


@run_async
async def test_a_failed_step_fails_its_batch_and_the_next_request_works() -> None:
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=failing_once())
    async with running(engine) as core:
        (result,) = (await collect(core, [make_sequence((1, EOS))])).values()
        assert result.outcome is Outcome.FAILED
        assert isinstance(result.error, EngineStepError)
        (result,) = (await collect(core, [make_sequence((2, EOS))])).values()
        assert result.hypotheses[0].token_ids == (2,)
        assert core.is_alive


def test_a_model_that_fails_in_every_step_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(decoder: FakeDecoder) -> None:
        raise EngineStepError("The decoder failed.") from RuntimeError("out of memory")

    async def test() -> None:
        async with running(FakeEngine(copy_script(V), vocab_size=V, before_step=fail)) as core:
            for number in range(1, 6):
                await collect(core, [make_sequence((number, EOS))])

    asyncio.run(asyncio.wait_for(test(), 10))
    (record,) = [each for each in caplog.records if each.name == "service.worker"]
    assert "1 sentences failed: The decoder failed." in record.getMessage()
    assert "out of memory" in caplog.text


@run_async
async def test_a_dead_worker_fails_everybody_and_says_so_once() -> None:
    deaths: list[EngineDeadError] = []
    gate = Gate()

    def die(decoder: FakeDecoder) -> None:
        gate(decoder)
        raise ZeroDivisionError

    engine = FakeEngine(vocab_size=V, before_step=die)
    observer = CollectingObserver()
    async with running(engine, num_workers=2, on_death=deaths.append, observer=observer) as core:
        task = asyncio.create_task(collect(core, [endless() for _ in range(4)]))
        await asyncio.to_thread(gate.reached.wait, 10)
        gate.open()
        results = await task
        assert {result.outcome for result in results.values()} == {Outcome.FAILED}
        assert all(isinstance(r.error, EngineDeadError) for r in results.values())
        assert not core.is_alive
        assert len(deaths) == 1
        assert isinstance(deaths[0].__cause__, ZeroDivisionError)
        with pytest.raises(EngineDeadError):
            await collect(core, [make_sequence()])
        assert await core.drain(1)
    last = observer.gauges[-1]
    assert (last.queue_depth, last.running_rows, last.kv_cache_bytes) == (0, 0, 0)


@run_async
async def test_what_was_ready_before_a_worker_died_is_answered() -> None:
    num_steps = 0

    def die(_: FakeDecoder) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 4:
            raise ZeroDivisionError

    async with running(FakeEngine(vocab_size=V, before_step=die)) as core:
        done = make_sequence((1, 2), max_length=2, min_target_tokens=9, request_id="done")
        crowd = [endless(request_id=str(number)) for number in range(17)]
        results = await collect(core, [done, *crowd])
    assert results.pop(done.sequence_id).outcome is Outcome.FINISHED
    assert {result.outcome for result in results.values()} == {Outcome.FAILED}


@run_async
async def test_work_goes_to_the_worker_that_has_least() -> None:
    gate = Gate()
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=gate)
    async with running(engine, num_workers=2) as core:
        heavy = make_sequence((1,) * 12, beam_size=4)
        light = [make_sequence((2, EOS), beam_size=1) for _ in range(6)]
        task = asyncio.create_task(collect(core, [heavy, *light]))
        await asyncio.sleep(0)
        gate.open()
        await task
        assert admitted_by_workers(engine) == [1, 6]


@run_async
async def test_a_short_call_goes_where_fewer_short_calls_are_whatever_documents_there_are() -> None:
    gate = Gate()
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=gate)
    async with running(engine, num_workers=2) as core:
        document = [make_sequence((1,) * 12), *(make_sequence((2, EOS)) for _ in range(4))]
        calls = [[make_sequence((3, EOS), request_id=f"call {number}")] for number in range(2)]
        tasks = [asyncio.create_task(collect(core, each)) for each in (document, *calls)]
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(*tasks)
        assert admitted_by_workers(engine) == [2, 5]


@run_async
async def test_an_answer_is_counted_before_it_is_given() -> None:
    observer = CollectingObserver()
    async with (
        running(observer=observer) as core,
        aclosing(core.stream([make_sequence((1, EOS), max_length=1)])) as stream,
    ):
        async for _ in stream:
            assert [stats.outcome for stats in observer.sequences] == [Outcome.FINISHED]
            assert observer.guards == ["truncated"]
            assert observer.gauges[-1].running_rows == 0
            assert observer.steps


@run_async
async def test_an_idle_worker_sleeps() -> None:
    observer = CollectingObserver()
    async with running(observer=observer) as core:
        await collect(core, [make_sequence((1, EOS))])
        before = len(observer.gauges)
        await asyncio.sleep(0.05)
        assert len(observer.gauges) == before
