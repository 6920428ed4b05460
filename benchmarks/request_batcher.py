"""A request-level dynamic batcher: what is built around an engine that translates one batch at a time.

Calls wait in a queue. When a worker is free and the batch is full, or the oldest call has waited for its delay, the
calls that fit become a batch; a batch runs to its end before the worker takes the next, and a call is never cut in
two. This is what inference servers call a dynamic batcher, and what stands before CTranslate2's `translate_batch`.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from service.errors import EngineStepError
from service.request import Outcome, SequenceResult
from service.request import Sequence as Sentence

__all__ = ["BatchTranslator", "OnResults", "RequestBatcher"]

logger = logging.getLogger(__name__)

OnResults = Callable[[list[SequenceResult]], object]


class BatchTranslator(Protocol):
    """What runs a batch; several threads may call it at once."""

    def translate(self, sentences: Sequence[Sentence], on_results: OnResults) -> None:
        """Translate sentences to the end of the last; tell all results, some perhaps before others."""


@dataclass(slots=True)
class _Call:
    """One call on its way."""

    sentences: list[Sentence]
    arrived: float
    results: asyncio.Queue[SequenceResult] = field(default_factory=asyncio.Queue)
    is_gone: bool = False


class RequestBatcher:
    """Takes the place of `service.core.EngineCore` behind the translator. Serves one event loop.

    Args:
        translator: What runs a batch.
        num_workers: Batches that run at once.
        max_batch_sentences: A batch holds no more, but for a call that is larger by itself.
        max_delay_seconds: How long the oldest call waits for company while a worker is free.
    """

    def __init__(
        self,
        translator: BatchTranslator,
        *,
        num_workers: int,
        max_batch_sentences: int = 32,
        max_delay_seconds: float = 0.005,
    ) -> None:
        self._translator = translator
        self._num_free = num_workers
        self._max_batch_sentences = max_batch_sentences
        self._max_delay_seconds = max_delay_seconds
        self._waiting: collections.deque[_Call] = collections.deque()
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="batch")
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Future[None]] = set()
        self.batch_sizes: collections.Counter[int] = collections.Counter()
        """How many batches had so many sentences."""

    async def stream(self, sequences: list[Sentence]) -> AsyncGenerator[SequenceResult]:
        """Give one result for each sentence. A call that is closed before its batch began is not run."""
        if not sequences:
            return
        call = _Call(sequences, arrived=asyncio.get_running_loop().time())
        self._waiting.append(call)
        self._start_batches()
        try:
            for _ in sequences:
                yield await call.results.get()
        finally:
            call.is_gone = True

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start_batches(self) -> None:
        """Start a batch on every free worker that has a reason to begin."""
        while self._num_free:
            self._waiting = collections.deque(call for call in self._waiting if not call.is_gone)
            if not self._waiting:
                return
            loop = asyncio.get_running_loop()
            begins = self._waiting[0].arrived + self._max_delay_seconds
            waiting = sum(len(call.sentences) for call in self._waiting)
            if waiting < self._max_batch_sentences and loop.time() < begins:
                self._wake_at(begins)
                return
            self._start(self._take_batch())

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._start_batches)

    def _take_batch(self) -> list[_Call]:
        """The oldest calls that fit together."""
        batch = [self._waiting.popleft()]
        room = self._max_batch_sentences - len(batch[0].sentences)
        while self._waiting and len(self._waiting[0].sentences) <= room:
            batch.append(self._waiting.popleft())
            room -= len(batch[-1].sentences)
        return batch

    def _start(self, batch: list[_Call]) -> None:
        loop = asyncio.get_running_loop()
        unanswered = {s.sequence_id: call for call in batch for s in call.sentences}
        sentences = [sentence for call in batch for sentence in call.sentences]
        self.batch_sizes[len(sentences)] += 1

        def deliver(results: list[SequenceResult]) -> None:
            for result in results:
                unanswered.pop(result.sequence_id).results.put_nowait(result)

        def run() -> None:
            self._translator.translate(
                sentences, lambda results: loop.call_soon_threadsafe(deliver, results)
            )

        def on_end(ended: asyncio.Future[None]) -> None:
            self._running.discard(ended)
            self._num_free += 1
            fault = ended.exception()
            if fault is not None:
                logger.error("A batch failed", exc_info=fault)
                deliver([_failed(sequence_id) for sequence_id in unanswered])
            self._start_batches()

        self._num_free -= 1
        future = loop.run_in_executor(self._pool, run)
        self._running.add(future)
        future.add_done_callback(on_end)


def _failed(sequence_id: int) -> SequenceResult:
    error = EngineStepError("The batch failed.")
    return SequenceResult(sequence_id=sequence_id, outcome=Outcome.FAILED, error=error)
