"""An event loop in which sleeping takes no time: when nothing is ready, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class InstantLoop(asyncio.SelectorEventLoop):
    """Its time is what the sleeps add up to; `advance` lets it pass as a busy processor would."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass during which the loop does nothing else."""
        self._now += seconds

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_instantly(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a clock that begins at 0."""
    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        return runner.run(coroutine)
