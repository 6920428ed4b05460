"""What a worker tells the event loop of its sentences: at once where few are running, of several together in a crowd.

Each report wakes the event loop, which then takes the interpreter and the processor's caches from the workers: 64 calls
at once are answered 5 to 8 % faster when four that are ready are told of together. Who is answered together asks again
together, so the next ones join as the group that the scheduler waits for in a crowd anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.driver import StepReport
from service.request import SequenceResult

__all__ = ["PendingReport", "WorkerReport"]

_COMPANY, _PATIENCE = 4, 3
"""In a crowd so many results are told of together, or after so many steps those that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """Who joined and who left in one or a few steps."""

    admitted: list[int]
    """Ids of the sentences that joined."""
    results: list[SequenceResult]
    """Of those that left, each exactly once."""
    busy_row_steps: int
    """Row-steps since the last report, of steps while others waited."""
    busy_seconds: float


class PendingReport:
    """Collects what one worker has to tell. Used by its thread."""

    def __init__(self) -> None:
        self._admitted: list[int] = []
        self._results: list[SequenceResult] = []
        self._num_steps = 0
        """Since something was to tell."""
        self._busy_row_steps = 0
        self._busy_seconds = 0.0

    def add(self, step: StepReport, *, is_busy: bool) -> None:
        """Note a step; tell whether sentences are waiting."""
        self._admitted += [sequence.sequence_id for sequence in step.admitted]
        self._results += [departure.result for departure in step.departures]
        self._num_steps += bool(self._admitted or self._results)
        if is_busy and step.stats is not None:
            self._busy_row_steps += step.stats.num_rows
            self._busy_seconds += step.stats.step_seconds

    def take(self, *, is_crowded: bool = False) -> WorkerReport | None:
        """Give what is to be told now, None when that is nothing."""
        if not self._num_steps:
            return None
        if is_crowded and len(self._results) < _COMPANY and self._num_steps <= _PATIENCE:
            return None
        report = WorkerReport(
            admitted=self._admitted,
            results=self._results,
            busy_row_steps=self._busy_row_steps,
            busy_seconds=self._busy_seconds,
        )
        self._admitted, self._results, self._num_steps = [], [], 0
        self._busy_row_steps, self._busy_seconds = 0, 0.0
        return report
