"""Times of several candidates, taken in turn, so that a machine that slows down slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["Samples", "fastest", "interleave", "median"]

Samples = dict[str, list[float]]
"""Seconds of each run by the name of who ran."""

_HOPELESS = 1.5
"""A variant that took so many times as long as the best of its family in the warm-up runs no more."""


def interleave(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    family: Callable[[str], str] = str,
) -> Samples:
    """Warm up with one run of each, then run all in turn, in changing order.

    Args:
        candidates: What to run, by name.
        rounds: Runs of each that count.
        family: Gives the engine that a name is a variant of; only the best variant counts in the end, so those that
            are far behind already in the warm-up are dropped.

    Returns:
        The seconds of each run of those that were not dropped.
    """
    for run in candidates.values():  # loads, allocates, fills caches
        run()
    warm = {name: _seconds(run) for name, run in candidates.items()}
    best: dict[str, float] = {}
    for name, seconds in warm.items():
        best[family(name)] = min(seconds, best.get(family(name), seconds))
    names = [name for name, seconds in warm.items() if seconds <= _HOPELESS * best[family(name)]]
    samples: Samples = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            samples[name].append(_seconds(candidates[name]))
    return samples


def median(samples: Samples, name: str) -> float:
    """The middle of the runs of one candidate, in seconds."""
    return statistics.median(samples[name])


def fastest(samples: Samples, names: list[str]) -> str:
    """The name with the smallest median."""
    return min((name for name in names if name in samples), key=lambda name: median(samples, name))


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
