"""The batcher that Dragoman is compared with does what dynamic batchers do, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

from benchmarks.request_batcher import OnResults, RequestBatcher
from service.request import Outcome, SequenceResult
from service.request import Sequence as Sentence
from tests.asynchronous import run_async
from tests.builders import make_sequence


class HeldTranslator:
    """Remembers batches; each ends when it is let go."""

    def __init__(self, *, is_held: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Semaphore(0 if is_held else 1000)
        self.fault: Exception | None = None

    def translate(self, sentences: Sequence[Sentence], on_results: OnResults) -> None:
        self.batches.append([sentence.sequence_id for sentence in sentences])
        assert self.go.acquire(timeout=10)
        if self.fault is not None:
            raise self.fault
        on_results([_result(sentence) for sentence in sentences])


def _result(sentence: Sentence) -> SequenceResult:
    return SequenceResult(sequence_id=sentence.sequence_id, outcome=Outcome.FINISHED)


def _sentences(*ids: int) -> list[Sentence]:
    return [make_sequence(sequence_id=number) for number in ids]


async def _ask(batcher: RequestBatcher, *ids: int) -> list[SequenceResult]:
    return [result async for result in batcher.stream(_sentences(*ids))]


async def _wait_for_batches(translator: HeldTranslator, count: int) -> None:
    while len(translator.batches) < count:
        await asyncio.sleep(0.001)


def _batcher(translator: HeldTranslator, **options: float) -> RequestBatcher:
    options = {"max_batch_sentences": 4, "max_delay_seconds": 0.0, **options}
    return RequestBatcher(translator, num_workers=1, **options)  # type: ignore[arg-type]


@run_async
async def test_a_batch_runs_to_its_end_before_those_that_came_meanwhile_begin() -> None:
    translator = HeldTranslator()
    batcher = _batcher(translator)
    calls = [asyncio.create_task(_ask(batcher, 1))]
    await _wait_for_batches(translator, 1)
    calls += [asyncio.create_task(_ask(batcher, 2)), asyncio.create_task(_ask(batcher, 3, 4))]
    await asyncio.sleep(0.02)
    assert translator.batches == [[1]]
    translator.go.release(2)
    results = await asyncio.gather(*calls)
    assert translator.batches == [[1], [2, 3, 4]]
    assert [[each.sequence_id for each in found] for found in results] == [[1], [2], [3, 4]]
    batcher.close()


@run_async
async def test_a_call_is_not_cut_and_a_larger_one_runs_alone() -> None:
    translator = HeldTranslator()
    batcher = _batcher(translator)
    calls = [asyncio.create_task(_ask(batcher, 0))]
    await _wait_for_batches(translator, 1)
    for ids in ((1, 2, 3), (4, 5), (6,), (10, 11, 12, 13, 14)):
        calls.append(asyncio.create_task(_ask(batcher, *ids)))
    translator.go.release(10)
    await asyncio.gather(*calls)
    assert translator.batches == [[0], [1, 2, 3], [4, 5, 6], [10, 11, 12, 13, 14]]
    batcher.close()


@run_async
async def test_a_lone_call_waits_for_company_and_a_full_batch_does_not() -> None:
    translator = HeldTranslator(is_held=False)
    batcher = _batcher(translator, max_delay_seconds=0.05)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(_ask(batcher, 1), _ask(batcher, 2))
    assert loop.time() - began >= 0.05
    assert translator.batches == [[1, 2]]
    batcher = _batcher(translator, max_delay_seconds=60.0)
    await asyncio.gather(_ask(batcher, 3, 4), _ask(batcher, 5, 6))
    assert translator.batches[1:] == [[3, 4, 5, 6]]
    batcher.close()


@run_async
async def test_a_call_that_is_given_up_before_its_batch_is_not_run() -> None:
    translator = HeldTranslator()
    batcher = _batcher(translator)
    first = asyncio.create_task(_ask(batcher, 1))
    await _wait_for_batches(translator, 1)
    given_up = asyncio.create_task(_ask(batcher, 2))
    last = asyncio.create_task(_ask(batcher, 3))
    await asyncio.sleep(0.01)
    given_up.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await given_up
    translator.go.release(2)
    await asyncio.gather(first, last)
    assert translator.batches == [[1], [3]]
    batcher.close()


@run_async
async def test_a_batch_that_fails_fails_its_calls_and_the_next_goes_well() -> None:
    translator = HeldTranslator(is_held=False)
    batcher = _batcher(translator)
    translator.fault = RuntimeError("out of memory")
    found = await asyncio.gather(_ask(batcher, 1), _ask(batcher, 2))
    assert {each.outcome for results in found for each in results} == {Outcome.FAILED}
    translator.fault = None
    (result,) = await _ask(batcher, 3)
    assert result.outcome is Outcome.FINISHED
    batcher.close()
