"""The calls that run: who shuts a server down waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["ActiveCalls"]


class ActiveCalls:
    """Counts calls. A `with` statement around each makes it one that is waited for."""

    def __init__(
        self,
        *,
        on_change: Callable[[int], None] = lambda count: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without any; `on_change` is told whenever there are more or fewer."""
        self._on_change = on_change
        self._clock = clock
        self._count = 0
        self._last_arrival = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        """A call begins."""
        self.note_arrival()
        if not self._count:
            self._idle.clear()
        self._count += 1
        self._on_change(self._count)

    def __exit__(self, *raised: object) -> None:
        """A call ended."""
        self._count -= 1
        self._on_change(self._count)
        if not self._count:
            self._idle.set()

    def note_arrival(self) -> None:
        """A call came; one that is refused is not waited for, but it is not quiet yet."""
        self._last_arrival = self._clock()

    async def wait_until_quiet(self, quiet_seconds: float, timeout_seconds: float) -> None:
        """Wait until no new call has come for a while, taken or refused, or until the time is up."""
        began = self._clock()
        self._last_arrival = max(self._last_arrival, began)
        while (now := self._clock()) - began < timeout_seconds:
            quiet_for = now - self._last_arrival
            if quiet_for >= quiet_seconds:
                break
            await asyncio.sleep(quiet_seconds - quiet_for)

    async def wait_until_idle(self, timeout_seconds: float) -> bool:
        """Wait for the calls that run. Returns whether all of them ended in time."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True
