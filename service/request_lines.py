"""How many lines about calls the log takes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["RequestLines"]


class RequestLines:
    """So many lines in each second, and as many of their own for what is a warning or worse.

    Those who write about calls ask before they make a record, which costs more than most else of a call; the filter
    of the log asks for every record. Calls live on the event loop: there is no race.
    """

    def __init__(
        self, max_lines_per_second: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the limit; 0 lets nothing through."""
        self._budgets = {
            is_grave: _Budget(max_lines_per_second, clock) for is_grave in (False, True)
        }

    def leave_out(self, level: int) -> bool:
        """Leave a line out if there is none left in this second; it counts. False: it may be written."""
        budget = self._budgets[level >= logging.WARNING]
        budget.renew()
        if budget.num_left:
            return False
        budget.num_left_out += 1
        return True

    def take(self, level: int) -> int | None:
        """Write a line, and learn how many like it were left out before. None: it must be left out; it counts."""
        if self.leave_out(level):
            return None
        budget = self._budgets[level >= logging.WARNING]
        budget.num_left -= 1
        return budget.pop_left_out()

    def pop_left_out(self) -> int:
        """How many lines of any kind were left out and have not been told of."""
        return sum(budget.pop_left_out() for budget in self._budgets.values())


class _Budget:
    """The lines of one kind."""

    def __init__(self, max_lines: int, clock: Callable[[], float]) -> None:
        self._max_lines = max_lines
        self._clock = clock
        self._began = clock()
        self.num_left = max_lines
        self.num_left_out = 0

    def renew(self) -> None:
        """Begin a new second, when one has passed."""
        now = self._clock()
        if now - self._began >= 1.0:
            self._began, self.num_left = now, self._max_lines

    def pop_left_out(self) -> int:
        """How many were left out and have not been told of."""
        left_out, self.num_left_out = self.num_left_out, 0
        return left_out
