"""How much of what the engine can do is left through gRPC?

64 clients, each with a connection of its own, ask for one text after the other; beside it, in turn, the engine alone
in this process: the same sentences, as many workers, 64 sentences on hand at any time, so its batches are at least as
full as the server's. The server's side includes everything that the engine alone is spared: the network, the wire
format, segmenting and tokenizing, metrics and log, and the clients, which run on the same cores and cost 0.2 ms a call
(`benchmarks.http2`; those of `grpc.aio` cost 0.5).
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.contenders import DRAGOMAN
from benchmarks.cpu_seconds import watch_cpu
from benchmarks.engine_alone import run_engine_alone
from benchmarks.load_closed import run_single_calls
from benchmarks.load_range import Range
from benchmarks.part import Absolute, Result
from service.engine.base import Engine
from service.request import Sequence as Sentence

__all__ = ["NUM_CLIENTS", "measure_efficiency"]

NUM_CLIENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One turn of one side."""

    throughput: float
    """Sentences a second."""
    server_seconds: float
    """Processor time of a sentence where it is translated."""
    client_seconds: float = 0.0
    """Where it is asked for."""
    others: float
    """Cores that other processes kept busy."""

    @property
    def cpu_seconds(self) -> float:
        """Processor time of a sentence."""
        return self.server_seconds + self.client_seconds


async def measure_efficiency(  # noqa: PLR0913 - both sides and how long, each named
    key: str,
    load: Range,
    engine: Engine,
    sentences: Sequence[Sentence],
    *,
    num_workers: int,
    num_slices: int,
    warm_seconds: float,
    seconds: float,
) -> Result:
    """Take turns with the engine alone.

    Args:
        key: Of the ratio.
        load: Dragoman among the servers.
        engine: Of the same bundle, in this process.
        sentences: What the texts of the load are as sequences.
        num_workers: Workers of the server.
        num_slices: Turns of each side.
        warm_seconds: Before each turn.
        seconds: Of each turn.
    """
    through: list[_Side] = []
    alone: list[_Side] = []
    for _ in range(num_slices):
        through.append(await _through_grpc(load, warm_seconds, seconds))
        with watch_cpu() as cpu:
            run = await asyncio.to_thread(
                run_engine_alone,
                engine,
                sentences,
                num_workers=num_workers,
                num_outstanding=NUM_CLIENTS,
                warm_seconds=warm_seconds,
                seconds=seconds,
            )
        alone.append(
            _Side(
                throughput=run.throughput,
                server_seconds=cpu.client / run.num_sentences,
                others=cpu.others / cpu.wall,
            )
        )
    return _describe(key, through, alone)


async def _through_grpc(load: Range, warm_seconds: float, seconds: float) -> _Side:
    lane = load.lane(DRAGOMAN)
    with lane.watch_cpu() as cpu:
        found = await run_single_calls(
            load, lane, NUM_CLIENTS, warm_seconds=warm_seconds, seconds=seconds
        )
    return _Side(
        throughput=found.throughput,
        server_seconds=cpu.server / found.num_calls,
        client_seconds=cpu.client / found.num_calls,
        others=cpu.others / cpu.wall,
    )


def _describe(key: str, through: Sequence[_Side], alone: Sequence[_Side]) -> Result:
    pairs = list(zip(through, alone, strict=True))
    sides = {"through gRPC": through, "alone": alone}
    wall = statistics.median(a.throughput / b.throughput for a, b in pairs)
    processor = statistics.median(b.cpu_seconds / a.cpu_seconds for a, b in pairs)
    server = statistics.median(b.cpu_seconds / a.server_seconds for a, b in pairs)
    clients = statistics.mean(side.client_seconds / side.cpu_seconds for side in through)
    others = statistics.mean(side.others for side in (*through, *alone))
    return Result(
        ratios={
            key: min(wall, processor),
            f"{key}.wall": wall,
            f"{key}.processor": processor,
            f"{key}.processor.server": server,
        },
        absolutes=[
            absolute
            for name, found in sides.items()
            for absolute in (
                Absolute(
                    what=f"{key}: {name}",
                    value=statistics.median(side.throughput for side in found),
                    unit="sentences/s",
                ),
                Absolute(
                    what=f"{key}: {name}, processor time",
                    value=statistics.median(side.cpu_seconds for side in found) * 1e3,
                    unit="ms a sentence",
                ),
            )
        ],
        samples={key: {name: [side.throughput for side in found] for name, found in sides.items()}},
        notes=[
            f"{key} is the smaller of the ratios of throughput (`.wall`) and of processor time (`.processor`): a busy "
            f"machine must not flatter it; {clients:.0%} of the processor time through gRPC is the clients' own, "
            f"which `.server` leaves out; other processes kept {others:.2f} cores busy meanwhile"
        ],
    )
