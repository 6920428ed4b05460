"""The event loop of a server: while it has callbacks to run, it asks the kernel for events every few rounds only.

A call goes through a dozen rounds of the loop with a callback or two in each, and asyncio asks in every one. The
question is cheap, but it lets go of the interpreter, which an engine thread then takes for up to half a millisecond.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["PatientSelector", "run"]

Value = TypeVar("Value")

_MAX_ROUNDS = 8
"""Rounds without a question."""

_Events = list[tuple[selectors.SelectorKey, int]]


class PatientSelector(selectors.DefaultSelector):
    """Has no events for some rounds to who would not wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self._num_rounds = 0

    def select(self, timeout: float | None = None) -> _Events:
        """Give the events that there are; `timeout` is 0 when the loop has callbacks to run."""
        if timeout == 0 and self._num_rounds < _MAX_ROUNDS:
            self._num_rounds += 1
            return []
        self._num_rounds = 0
        return super().select(timeout)


def run(main: Coroutine[Any, Any, Value]) -> Value:
    """As `asyncio.run`, on such a loop."""
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(PatientSelector())
    ) as runner:
        return runner.run(main)
