"""What each ratio must be: the floors, and the goals behind them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A floor or a ceiling of one ratio."""

    meaning: str
    at_least: float | None = None
    at_most: float | None = None
    goal: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether a measured value is on the right side."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is None or value <= self.at_most

    def __str__(self) -> str:
        goal = "" if self.goal is None else f" (goal {self.goal:g})"
        if self.at_least is not None:
            return f"at least {self.at_least:g}{goal}"
        return f"at most {self.at_most:g}{goal}"


def _throughput(at_least: float, goal: float | None = None) -> Target:
    meaning = "tokens a second over CTranslate2's, batch 32"
    return Target(meaning=meaning, at_least=at_least, goal=goal)


def _latency(at_most: float) -> Target:
    meaning = "seconds of one sentence alone over CTranslate2's"
    return Target(meaning=meaning, at_most=at_most, goal=0.6)


TARGETS = {
    "tiny.int8.beam4.throughput": _throughput(1.15, 1.7),
    "base.int8.beam4.throughput": _throughput(1.15, 1.7),
    "tiny.int8.beam1.throughput": _throughput(1.1, 1.7),
    "base.int8.beam1.throughput": _throughput(1.2, 1.7),
    "tiny.int8.beam4.shortlist.throughput": _throughput(2.3, 4.0),
    "base.int8.beam4.shortlist.throughput": _throughput(1.8, 4.0),
    "tiny.fp32.beam4.throughput": _throughput(1.0),
    "tiny.int8.beam4.latency": _latency(0.8),
    "base.int8.beam4.latency": _latency(0.7),
    "base.int8.roof": Target(
        meaning="time that the products alone need at this machine's rate over the time taken",
        at_least=0.5,
    ),
    "grpc.efficiency": Target(
        meaning="throughput through gRPC at 64 clients over the engine alone", at_least=0.85
    ),
    "load.p99": Target(
        meaning="p99 of one-sentence calls over that of a request-level batcher", at_most=0.6
    ),
    "step.python": Target(
        meaning="share of a decoder step outside the graph, beam 4, batch 32", at_most=0.15
    ),
    "memory.rss_mb": Target(meaning="resident MB of a server with one bundle", at_most=250.0),
    "start.seconds": Target(meaning="seconds from process start to serving", at_most=2.0),
}
"""By the key in the JSON file, in the order of the table."""
