"""Workload (e), open loop: the same calls at the same times for every server, one in ten of them a document.

Servers take turns in slices, each slice with arrivals of its own. No call carries a deadline, so every server does all
the work and latencies are whole; goodput is what was answered within the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.arrivals import poisson_arrivals
from benchmarks.call_times import CallTime, describe, percentile
from benchmarks.contenders import BATCHER, CTRANSLATE2, DRAGOMAN
from benchmarks.cpu_seconds import CpuSeconds
from benchmarks.load_range import Lane, Range
from benchmarks.open_loop import run_open_loop
from benchmarks.part import Absolute, Result

__all__ = ["DEADLINE_SECONDS", "RATIO_SHARE", "OpenLoad", "measure_rates"]

DEADLINE_SECONDS = 0.5
RATIO_SHARE = 0.7
"""Share of the capacity at which `load.p99` is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoad:
    """One rate of arrivals."""

    share: float
    """Of the capacity."""
    num_slices: int
    slice_seconds: float


@dataclass(slots=True)
class _Outcome:
    """All slices of one server at one rate."""

    calls: list[CallTime] = field(default_factory=list)
    cpu: list[CpuSeconds] = field(default_factory=list)

    def singles(self) -> list[CallTime]:
        """Calls of one text."""
        return [call for call in self.calls if call.num_texts == 1]

    def documents(self) -> list[CallTime]:
        """The others."""
        return [call for call in self.calls if call.num_texts > 1]


async def measure_rates(load: Range, loads: Iterable[OpenLoad], capacity: float) -> Result:
    """Let the calls of each rate come in at every server.

    Args:
        load: The servers.
        loads: The rates.
        capacity: Calls a second that count as 100 %.
    """
    result = Result()
    for each in loads:
        outcomes = await _measure_rate(load, each, capacity * each.share)
        for name, outcome in outcomes.items():
            result.absolutes += _describe(f"load {each.share:.0%}, {name}", outcome, each)
        result.samples.update(_samples(f"load.{each.share:.0%}", outcomes))
        result.notes.append(_note(each, capacity, outcomes))
        if math.isclose(each.share, RATIO_SHARE):
            result.ratios.update(_ratios(outcomes))
    return result


async def _measure_rate(load: Range, each: OpenLoad, rate: float) -> dict[str, _Outcome]:
    outcomes = {lane.name: _Outcome() for lane in load.lanes}
    for number in range(each.num_slices):
        seed = round(1000 * each.share) + number
        arrivals = poisson_arrivals(rate, each.slice_seconds, load.texts, seed)
        messages = load.encode([arrival.texts for arrival in arrivals])
        first = number % len(load.lanes)
        for lane in (*load.lanes[first:], *load.lanes[:first]):

            async def send(place: int, lane: Lane = lane, messages: list[bytes] = messages) -> None:
                await lane.caller.call(place, messages[place])

            with lane.watch_cpu() as seconds:
                outcomes[lane.name].calls += await run_open_loop(arrivals, send)
            outcomes[lane.name].cpu.append(seconds)
    return outcomes


def _ratios(outcomes: dict[str, _Outcome]) -> dict[str, float]:
    """What is asked, and the same against the others; medians and documents show at whose expense it is."""
    ours = outcomes[DRAGOMAN]
    ratios: dict[str, float] = {}
    for name, suffix in ((BATCHER, ""), (CTRANSLATE2, ".ctranslate2")):
        if name not in outcomes:
            continue
        theirs = outcomes[name]
        for share in (99, 50):
            ratios[f"load.p{share}{suffix}"] = _ratio(ours.singles(), theirs.singles(), share / 100)
        ratios[f"load.documents.p50{suffix}"] = _ratio(ours.documents(), theirs.documents(), 0.5)
    return ratios


def _ratio(ours: Sequence[CallTime], theirs: Sequence[CallTime], share: float) -> float:
    mine, other = ([call.seconds for call in calls] for calls in (ours, theirs))
    return percentile(mine, share) / percentile(other, share)


def _describe(what: str, outcome: _Outcome, each: OpenLoad) -> list[Absolute]:
    singles = describe(outcome.singles(), DEADLINE_SECONDS)
    documents = describe(outcome.documents(), DEADLINE_SECONDS)
    everything = describe(outcome.calls, DEADLINE_SECONDS)
    seconds = each.num_slices * each.slice_seconds
    values = (
        ("p50 of one sentence", singles.p50 * 1e3, "ms"),
        ("p95 of one sentence", singles.p95 * 1e3, "ms"),
        ("p99 of one sentence", singles.p99 * 1e3, "ms"),
        ("p50 of documents", documents.p50 * 1e3, "ms"),
        ("p95 of documents", documents.p95 * 1e3, "ms"),
        ("one sentence within 500 ms", singles.goodput * 100, "%"),
        ("goodput at 500 ms", everything.goodput * everything.count / seconds, "calls/s"),
    )
    return [
        Absolute(what=f"{what}: {name}", value=value, unit=unit) for name, value, unit in values
    ]


def _samples(key: str, outcomes: dict[str, _Outcome]) -> dict[str, dict[str, list[float]]]:
    return {
        f"{key}.{kind}": {
            name: [call.seconds for call in getattr(outcome, kind)()]
            for name, outcome in outcomes.items()
        }
        for kind in ("singles", "documents")
    }


def _note(each: OpenLoad, capacity: float, outcomes: dict[str, _Outcome]) -> str:
    calls = [call for outcome in outcomes.values() for call in outcome.calls]
    late = percentile([call.sent - call.scheduled for call in calls], 0.99)
    cpu = [seconds for outcome in outcomes.values() for seconds in outcome.cpu]
    wall = sum(each.wall for each in cpu)
    client, others = (
        sum(getattr(each, who) for each in cpu) / wall for who in ("client", "others")
    )
    failed = sum(not call.answered for call in calls)
    busy = ", ".join(
        f"{name} {sum(s.server for s in outcome.cpu) / sum(s.wall for s in outcome.cpu):.2f}"
        for name, outcome in outcomes.items()
    )
    count = len(next(iter(outcomes.values())).calls)
    return (
        f"load {each.share:.0%}: {count} calls to each server at {each.share * capacity:.1f} calls/s, {failed} failed; "
        f"busy cores: the clients {client:.2f}, {busy}, other processes {others:.2f}; "
        f"99 % of calls were sent at most {late * 1e3:.0f} ms late"
    )
