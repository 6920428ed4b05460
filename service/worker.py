"""The thread that runs one driver. Messages come in through one inbox; reports go out through one listener.

Without work the thread sleeps in its inbox: nothing polls.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import Protocol

from service.driver import Driver, StepReport, sequence_stats
from service.errors import DrainingError
from service.request import Outcome, Sequence
from service.scheduler.scheduler import Departure
from service.stats import Observer
from service.worker_report import PendingReport, WorkerReport

__all__ = [
    "Abort",
    "Add",
    "Message",
    "Stop",
    "Worker",
    "WorkerGauges",
    "WorkerListener",
]

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_FAULTS = 1.0
"""A model that fails in every step writes one line a second, not one a step."""


@dataclass(frozen=True, slots=True)
class Add:
    """Inbox: take these sentences in."""

    sequences: list[Sequence]


@dataclass(frozen=True, slots=True)
class Abort:
    """Inbox: let these sentences leave before the next step; ids that are gone are no fault."""

    sequence_ids: list[int]


@dataclass(frozen=True, slots=True)
class Stop:
    """Inbox: let every sentence leave, and end."""


Message = Add | Abort | Stop
"""What an inbox takes."""


@dataclass(frozen=True, slots=True)
class WorkerGauges:
    """What one worker holds after a step."""

    running_sequences: int = 0
    running_rows: int = 0
    live_bytes: int = 0
    reserved_bytes: int = 0


class WorkerListener(Protocol):
    """Whom a worker tells. Called from its thread."""

    def on_worker_step(
        self, worker: int, gauges: WorkerGauges, report: WorkerReport | None
    ) -> None:
        """A step ended; there is a report when there is something to tell of those who joined or left."""

    def on_worker_death(self, worker: int, cause: BaseException) -> None:
        """The worker cannot go on. It tells nothing more."""


class Worker(threading.Thread):
    """One engine worker.

    Args:
        index: Its number within the model.
        driver: What it runs; nobody else uses it.
        observer: Told of steps and sentences.
        listener: Told what the event loop must know.
    """

    def __init__(
        self, *, index: int, driver: Driver, observer: Observer, listener: WorkerListener
    ) -> None:
        super().__init__(name=f"engine-{driver.model}-{index}", daemon=True)
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._index = index
        self._driver = driver
        self._observer = observer
        self._listener = listener
        self._pending = PendingReport()
        self._next_fault_line = 0.0

    def run(self) -> None:
        """Step while there is work, until told to stop."""
        try:
            while self._read_inbox():
                if self._driver.seconds_until_step() == 0.0:
                    self._tell(self._driver.step())
            error = DrainingError("The server stopped before the translation was ready.")
            departures = self._driver.close(error, Outcome.CANCELLED)
            self._tell(StepReport(departures=departures, admitted=[], stats=None))
        except Exception as error:
            # Whatever it was, this worker's state cannot be trusted; the process will end.
            logger.exception("Engine worker %s of model %s died", self._index, self._driver.model)
            try:
                self._listener.on_worker_step(self._index, WorkerGauges(), self._pending.take())
            finally:
                self._listener.on_worker_death(self._index, error)

    def _read_inbox(self) -> bool:
        """Apply the messages that are there; wait for one when there is nothing to do. False: stop."""
        wait = self._driver.seconds_until_step()
        try:
            message = self.inbox.get(timeout=wait) if wait != 0.0 else self.inbox.get_nowait()
            while True:
                match message:
                    case Add(sequences):
                        for sequence in sequences:
                            self._driver.add(sequence)
                    case Abort(sequence_ids):
                        for sequence_id in sequence_ids:
                            self._driver.abort(sequence_id)
                    case Stop():
                        return False
                message = self.inbox.get_nowait()
        except queue.Empty:
            return True

    def _tell(self, report: StepReport) -> None:
        """Statistics first, then results: who has an answer finds it counted."""
        if report.stats is not None:
            self._observer.on_step(report.stats)
        for departure in report.departures:
            stats = sequence_stats(self._driver.model, departure)
            self._observer.on_sequence(stats)
            if stats.truncated:
                self._observer.on_guard(stats.model, "truncated")
        if report.departures:
            self._log_failures(report.departures)
        driver = self._driver
        gauges = WorkerGauges(
            driver.num_running, driver.num_rows, driver.live_bytes, driver.reserved_bytes
        )
        self._pending.add(report, is_busy=driver.num_waiting > 0)
        told = self._pending.take(is_crowded=driver.is_crowded)
        self._listener.on_worker_step(self._index, gauges, told)

    def _log_failures(self, departures: list[Departure]) -> None:
        """Tell of a step that failed, with what the runtime said. It knows token ids at most, no text."""
        failed = [each.result for each in departures if each.result.outcome is Outcome.FAILED]
        now = time.monotonic()
        if not failed or now < self._next_fault_line:
            return
        self._next_fault_line = now + _SECONDS_BETWEEN_FAULTS
        error = failed[0].error
        logger.error(
            "Model %s: %s sentences failed: %s",
            self._driver.model,
            len(failed),
            error,
            exc_info=error,
        )
