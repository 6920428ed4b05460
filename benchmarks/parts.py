"""Which quantities `dragoman bench` measures, in this order.

A part is a module of this package with a function `measure(stand: Stand) -> Result`. It is imported when its turn
comes, so that what one part needs and a machine lacks does not keep the others from running.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PARTS", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the registry."""

    name: str
    """For `--only`, and for the table when it cannot run."""
    module: str
    """In `benchmarks`."""
    keys: tuple[str, ...] = ()
    """The keys of `benchmarks/targets.py` that it fills."""


PARTS = (
    Part("identity", "identity"),
    Part(
        "throughput",
        "throughput",
        (
            "tiny.int8.beam4.throughput",
            "base.int8.beam4.throughput",
            "tiny.int8.beam1.throughput",
            "base.int8.beam1.throughput",
            "tiny.fp32.beam4.throughput",
        ),
    ),
    Part("latency", "latency", ("tiny.int8.beam4.latency", "base.int8.beam4.latency")),
    Part("all-lengths", "all_lengths"),
    Part("long", "long_targets"),
    Part(
        "shortlist",
        "shortlist_throughput",
        ("tiny.int8.beam4.shortlist.throughput", "base.int8.beam4.shortlist.throughput"),
    ),
    Part("transformers", "peer_transformers"),
    Part("roof", "roof", ("base.int8.roof",)),
    Part("load", "load", ("grpc.efficiency", "load.p99")),
    Part("step", "step_python", ("step.python",)),
    Part("memory", "memory", ("memory.rss_mb",)),
    Part("start", "start_time", ("start.seconds",)),
)
