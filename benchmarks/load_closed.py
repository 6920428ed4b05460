"""Workload (e), closed loop: clients with a connection each, who ask again when they are answered."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from benchmarks.arrivals import draw_mix
from benchmarks.closed_loop import ClosedLoop, run_closed_loop
from benchmarks.load_range import Lane, Range
from benchmarks.part import Absolute, Result

__all__ = ["measure_capacities", "measure_clients", "run_single_calls"]

_CAPACITY_CLIENTS = 32
"""Calls under way when the most that a server can do is measured: about 130 texts, twice what it computes at once."""
_MIX_CALLS = 2000
_MIX_SEED = 7


async def measure_clients(
    load: Range, client_counts: Sequence[int], *, warm_seconds: float, seconds: float
) -> Result:
    """Throughput and latency of calls of one text, of every server in turn."""
    result = Result()
    for num_clients in client_counts:
        for lane in load.lanes:
            found = await run_single_calls(
                load, lane, num_clients, warm_seconds=warm_seconds, seconds=seconds
            )
            result.merge(_describe(f"{num_clients} clients, {lane.name}", found))
            samples = result.samples.setdefault(f"load.{num_clients} clients", {})
            samples[lane.name] = found.call_seconds
    return result


async def run_single_calls(
    load: Range, lane: Lane, num_clients: int, *, warm_seconds: float, seconds: float
) -> ClosedLoop:
    """Clients that ask for one text after the other; each begins at another text."""
    messages = load.encode([(text,) for text in load.texts])
    turns = itertools.count()

    async def send(client: int) -> None:
        await lane.caller.call(client, messages[next(turns) % len(messages)])

    return await run_closed_loop(send, num_clients, warm_seconds=warm_seconds, seconds=seconds)


async def measure_capacities(
    load: Range, *, num_slices: int, warm_seconds: float, seconds: float
) -> dict[str, float]:
    """Calls a second, one in ten of them a document, that each server does when it is never without work.

    The servers take turns; the median of their turns counts.
    """
    messages = load.encode(draw_mix(_MIX_CALLS, load.texts, _MIX_SEED))
    found: dict[str, list[float]] = {lane.name: [] for lane in load.lanes}
    for _ in range(num_slices):
        for lane in load.lanes:
            turns = itertools.count()

            async def send(
                client: int, lane: Lane = lane, turns: itertools.count[int] = turns
            ) -> None:
                await lane.caller.call(client, messages[next(turns) % len(messages)])

            run = await run_closed_loop(
                send, _CAPACITY_CLIENTS, warm_seconds=warm_seconds, seconds=seconds
            )
            found[lane.name].append(run.throughput)
    return {name: statistics.median(rates) for name, rates in found.items()}


def _describe(what: str, found: ClosedLoop) -> Result:
    milliseconds = {f"p{share}": found.percentile(share / 100) * 1e3 for share in (50, 95, 99)}
    return Result(
        absolutes=[
            Absolute(what=f"{what}: throughput", value=found.throughput, unit="calls/s"),
            *(
                Absolute(what=f"{what}: {name}", value=value, unit="ms")
                for name, value in milliseconds.items()
            ),
        ]
    )
