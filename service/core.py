"""Stages 4 to 8 of 10, as the translator sees them: one loaded model, its workers, and its door.

Sentences go in at the door, on the event loop; results come back through one call a step. The door alone refuses:
whatever it lets in is answered exactly once. All bookkeeping here happens on the event loop, so it needs no lock; only
the gauges, which workers report themselves, have one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from service.config import SchedulerConfig
from service.engine_workers import EngineWorkers
from service.errors import (
    DeadlineError,
    DragomanError,
    DrainingError,
    EngineDeadError,
    InvalidRequestError,
    OverloadedError,
)
from service.request import Outcome, Sequence, SequenceResult
from service.scheduler.budget import BatchBudget
from service.scheduler.load import WorkerLoad, choose_worker, work_of
from service.scheduler.queue import SHORT_SENTENCES
from service.stats import Gauges, Observer
from service.worker import Abort, Add, Stop, WorkerGauges
from service.worker_report import WorkerReport

__all__ = ["EngineCore"]

logger = logging.getLogger(__name__)


class _Ticket:
    """One call of `stream`: what it waits for, and what has come of it and was not taken yet."""

    def __init__(self, unanswered: set[int]) -> None:
        self.unanswered = unanswered
        self._results: deque[SequenceResult] = deque()
        self._arrival: asyncio.Future[None] | None = None

    def put(self, result: SequenceResult) -> None:
        """A sentence left."""
        self._results.append(result)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def take(self) -> SequenceResult:
        """Wait for the next result."""
        if not self._results:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        result = self._results.popleft()
        self.unanswered.discard(result.sequence_id)
        return result


@dataclass(slots=True)
class _Outstanding:
    """A sentence that was let in and has not left."""

    sequence: Sequence
    ticket: _Ticket
    worker: int
    is_short: bool
    """Whether it came with few others."""
    is_waiting: bool = True


class _GaugeBoard:
    """Adds up what the workers hold, and tells the observer in the order in which it changed."""

    def __init__(self, model: str, num_workers: int, observer: Observer) -> None:
        self._model = model
        self._observer = observer
        self._lock = threading.Lock()
        self._workers = [WorkerGauges() for _ in range(num_workers)]
        self._queue_depth = 0

    def set_worker(self, index: int, gauges: WorkerGauges) -> None:
        """A worker ended a step."""
        with self._lock:
            self._workers[index] = gauges
            self._tell()

    def set_queue_depth(self, depth: int) -> None:
        """The queue changed."""
        with self._lock:
            if depth != self._queue_depth:
                self._queue_depth = depth
                self._tell()

    def _tell(self) -> None:
        sequences = rows = live_bytes = reserved_bytes = 0
        for gauges in self._workers:
            sequences += gauges.running_sequences
            rows += gauges.running_rows
            live_bytes += gauges.live_bytes
            reserved_bytes += gauges.reserved_bytes
        self._observer.on_gauges(
            Gauges(
                model=self._model,
                queue_depth=self._queue_depth,
                running_sequences=sequences,
                running_rows=rows,
                kv_cache_bytes=live_bytes,
                kv_reserved_bytes=reserved_bytes,
            )
        )


class EngineCore:
    """One loaded model. Serves one event loop at a time.

    Args:
        name: Name of the model.
        workers: What translates with it.
        config: Limits of each worker's batch, and of the queue before all of them.
        observer: Told of steps, sentences and gauges.
        clock: Monotonic seconds; deadlines of sentences are on it.
        on_death: Called once, on the event loop, when a worker died: the process must end.
    """

    def __init__(  # noqa: PLR0913 - the parts of a core, each named
        self,
        *,
        name: str,
        workers: EngineWorkers,
        config: SchedulerConfig,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
        on_death: Callable[[EngineDeadError], None] | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._clock = clock
        self._on_death = on_death
        self._workers = workers
        self._observer = observer
        self._budget = BatchBudget(config, workers.cache_bytes)
        self._gauges = _GaugeBoard(name, workers.num_workers, observer)
        self._loads = [WorkerLoad() for _ in range(workers.num_workers)]
        self.num_waiting = 0
        """Sentences that wait for their turn."""
        self._outstanding: dict[int, _Outstanding] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._death: EngineDeadError | None = None

    @property
    def is_alive(self) -> bool:
        """Whether all workers are well. True before `start` and after `stop`."""
        return self._death is None

    @property
    def num_outstanding(self) -> int:
        """Sentences that were let in and have not left."""
        return len(self._outstanding)

    def start(self) -> None:
        """Let the workers begin."""
        self._workers.start(self._observer, self)

    async def stream(self, sequences: list[Sequence]) -> AsyncGenerator[SequenceResult]:
        """Translate sentences; each gets exactly one result, in the order in which they finish.

        Closing the generator, or cancelling who waits for it, aborts what is left: its rows are freed before the next
        step. A sentence that fails or expires gives a result that says so.

        Raises:
            OverloadedError: The queue is full. Nothing was taken.
            DeadlineError: The deadline has passed, or passes before all could be done. Nothing was taken.
            DrainingError: The server is shutting down. Nothing was taken.
            EngineDeadError: A worker died. Nothing was taken.
            InvalidRequestError: A sentence needs more rows or memory than the server has. Nothing was taken.
        """
        if not sequences:
            return
        self._check_door(sequences)
        ticket = self._let_in(sequences)
        try:
            while ticket.unanswered:
                yield await ticket.take()
        finally:
            self._abort(ticket)

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and wait for what runs. Returns whether all of it ended in time."""
        self._draining = True
        if self._idle.is_set():
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """End the workers after the step they are in. Sentences that are left get a result that says so."""
        self._draining = True
        self._stop_workers()
        self._workers.join()

    def _stop_workers(self) -> None:
        for index in range(self._workers.num_workers):
            self._workers.send(index, Stop())

    def _check_door(self, sequences: list[Sequence]) -> None:
        """Raise when the sentences must not come in."""
        if self._death is not None:
            raise self._death
        if self._draining:
            raise DrainingError("The server is shutting down.")
        limit = self._config.max_queue_sequences
        if len(sequences) > limit:
            raise InvalidRequestError(
                f"A request must have at most {limit} sentences, but has {len(sequences)}."
            )
        misfit = self._budget.find_misfit(sequences)
        if misfit is not None:
            raise InvalidRequestError(
                f"A sentence of {len(misfit.source_ids)} tokens with `beam_size` "
                f"{misfit.options.beam_size} needs more room than this server has."
            )
        if self.num_waiting + len(sequences) > limit:
            waits = [load.seconds_until_free() for load in self._loads]
            known = [wait for wait in waits if wait is not None]
            raise OverloadedError(
                f"The queue is full: {limit} sentences may wait.",
                retry_after_seconds=max(known, default=1.0),
            )
        self._check_deadline(sequences)

    def _check_deadline(self, sequences: list[Sequence]) -> None:
        deadlines = [s.deadline for s in sequences if s.deadline is not None]
        if not deadlines:
            return
        seconds_left = min(deadlines) - self._clock()
        if seconds_left <= 0:
            raise DeadlineError("The deadline has passed.")
        share = 1 / len(self._loads)
        work = sum(map(work_of, sequences)) * share
        estimates = [load.seconds_until_done(len(sequences) * share, work) for load in self._loads]
        known = [seconds for seconds in estimates if seconds is not None]
        if len(known) == len(estimates) and min(known) > seconds_left:
            raise DeadlineError(
                f"The deadline is in {seconds_left:.3f} s, but the queue needs {min(known):.3f} s."
            )

    def _let_in(self, sequences: list[Sequence]) -> _Ticket:
        """Give each sentence to a worker."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop and self._outstanding:
            raise RuntimeError("An engine core serves one event loop at a time.")
        self._loop = loop
        self._idle.clear()
        ticket = _Ticket({sequence.sequence_id for sequence in sequences})
        batches: list[list[Sequence]] = [[] for _ in self._loads]
        is_short = len(sequences) <= SHORT_SENTENCES
        for sequence in sequences:
            index = choose_worker(self._loads, sequence, is_short=is_short)
            self._loads[index].add(sequence, is_short=is_short)
            item = _Outstanding(sequence, ticket, index, is_short)
            self._outstanding[sequence.sequence_id] = item
            batches[index].append(sequence)
        self.num_waiting += len(sequences)
        self._gauges.set_queue_depth(self.num_waiting)
        for index, batch in enumerate(batches):
            if batch:
                self._workers.send(index, Add(batch))
        return ticket

    def _abort(self, ticket: _Ticket) -> None:
        """Abort what a call leaves behind.

        Its sentences stay in the books until the workers report them gone, but no longer take room in the queue.
        """
        left: dict[int, list[int]] = {}
        for sequence_id in ticket.unanswered:
            item = self._outstanding.get(sequence_id)
            if item is not None:
                self._stop_waiting(item)
                left.setdefault(item.worker, []).append(sequence_id)
        if not left:
            return
        self._gauges.set_queue_depth(self.num_waiting)
        for index, sequence_ids in left.items():
            self._workers.send(index, Abort(sequence_ids))

    def _stop_waiting(self, item: _Outstanding) -> None:
        """Take a sentence off the queue, if it is still on it."""
        if item.is_waiting:
            item.is_waiting = False
            self.num_waiting -= 1
            self._loads[item.worker].stop_waiting(item.sequence)

    def on_worker_step(
        self, worker: int, gauges: WorkerGauges, report: WorkerReport | None
    ) -> None:
        """A worker ended a step."""
        self._gauges.set_worker(worker, gauges)
        if report is not None:
            self._call_on_loop(self._receive, worker, report)

    def on_worker_death(self, worker: int, cause: BaseException) -> None:
        """A worker cannot go on."""
        self._gauges.set_worker(worker, WorkerGauges())
        self._call_on_loop(self._die, cause)

    def _call_on_loop(self, function: Callable[..., None], *args: object) -> None:
        """From a worker: run something on the event loop, or here while there is none yet."""
        loop = self._loop
        if loop is None:
            function(*args)
            return
        try:
            loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # The loop is closed: nobody is left to be told.
            logger.debug("Model %s: the event loop is closed", self.name)

    def _receive(self, worker: int, report: WorkerReport) -> None:
        """Take in what a worker reports: who joined, who left."""
        load = self._loads[worker]
        load.learn_speed(report.busy_row_steps, report.busy_seconds)
        for sequence_id in report.admitted:
            item = self._outstanding.get(sequence_id)
            if item is not None:
                self._stop_waiting(item)
        for result in report.results:
            self._answer(result)
        self._after_change()

    def _answer(self, result: SequenceResult) -> None:
        """Close the books on a sentence and hand its result over."""
        item = self._outstanding.pop(result.sequence_id, None)
        if item is None:  # Failed already, when another worker died.
            return
        self._stop_waiting(item)
        load = self._loads[item.worker]
        if result.hypotheses:
            best = result.hypotheses[0]
            load.learn_length(len(item.sequence.source_ids), len(best.token_ids) + 1)
        load.leave(item.sequence, is_short=item.is_short)
        item.ticket.put(result)

    def _after_change(self) -> None:
        self._gauges.set_queue_depth(self.num_waiting)
        if not self._outstanding:
            self._idle.set()

    def _die(self, cause: BaseException) -> None:
        """A worker died: everybody fails, nobody comes in, and the process is asked to end."""
        if self._death is not None:
            return
        self._death = EngineDeadError("The engine of this server died.")
        self._death.__cause__ = cause
        for sequence_id in list(self._outstanding):
            self._answer(_failed(sequence_id, self._death))
        self._after_change()
        self._stop_workers()
        if self._on_death is not None:
            self._on_death(self._death)


def _failed(sequence_id: int, error: DragomanError) -> SequenceResult:
    return SequenceResult(sequence_id=sequence_id, outcome=Outcome.FAILED, error=error)
