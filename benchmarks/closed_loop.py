"""Clients that ask again as soon as they are answered: how much a server does when it is never without work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.call_times import percentile

__all__ = ["ClosedLoop", "run_closed_loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """What clients saw in a stretch of time."""

    seconds: float
    """Length of the stretch."""
    call_seconds: list[float]
    """Of each call that ended in it."""
    num_calls: int
    """All, those before and after it included."""

    @property
    def throughput(self) -> float:
        """Calls a second."""
        return len(self.call_seconds) / self.seconds

    def percentile(self, share: float) -> float:
        """Seconds within which this share of the calls was answered."""
        return percentile(self.call_seconds, share)


async def run_closed_loop(
    send: Callable[[int], Awaitable[object]],
    num_clients: int,
    *,
    warm_seconds: float,
    seconds: float,
) -> ClosedLoop:
    """Let clients call for a while; what ends in the warm-up does not count.

    Args:
        send: Sends the next call of the client with this number, and waits for its answer.
        num_clients: How many calls are under way at any time.
        warm_seconds: Until all clients are out of step with each other.
        seconds: How long calls count after that.
    """
    clock = asyncio.get_running_loop().time
    begins = clock() + warm_seconds
    ends = begins + seconds
    found: list[float] = []
    num_calls = 0

    async def be_client(number: int) -> None:
        nonlocal num_calls
        while (sent := clock()) < ends:
            await send(number)
            num_calls += 1
            if begins <= (now := clock()) < ends:
                found.append(now - sent)

    await asyncio.gather(*(be_client(number) for number in range(num_clients)))
    return ClosedLoop(seconds=seconds, call_seconds=found, num_calls=num_calls)
