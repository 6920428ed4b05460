"""Counters, gauges and histograms that cost little to feed: a call and its steps feed them forty times.

The metrics of prometheus_client are its own; they take a lock and several calls for each value, a tenth of all that a
call costs beside its translation. These are plain values under one lock for all, and become its families in a scrape.
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["Distribution", "Family", "Number", "Tallies"]


class Number:
    """What a counter or a gauge stands at."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Distribution:
    """How often values were at most as large as each bound.

    With bounds (1, 2) the values 1, 1.5 and 7 are counted as [1, 1, 1]: at most 1, at most 2, larger.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Tally = TypeVar("Tally", Number, Distribution)


class Family(Generic[Tally]):
    """The tallies of one metric, by the values of its labels."""

    def __init__(
        self, create: Callable[[], Tally], tell: Callable[[dict[tuple[str, ...], Tally]], Metric]
    ) -> None:
        """Take how a tally begins, and how all of them become a family of Prometheus."""
        self._create: Callable[[], Tally] = create
        self._tell: Callable[[dict[tuple[str, ...], Tally]], Metric] = tell
        self._tallies: dict[tuple[str, ...], Tally] = {}

    def labels(self, *values: str) -> Tally:
        """The tally with these values of the labels; from now on it is told, at zero to begin with."""
        known = self._tallies.get(values)
        if known is None:
            known = self._tallies[values] = self._create()
        return known

    def tell(self) -> Metric:
        """Give what Prometheus is told."""
        return self._tell(self._tallies)


class Tallies(Collector):
    """All families of a registry. Hold `lock` while a tally is made or fed: scrapes come from another thread."""

    def __init__(self) -> None:
        """Begin without any."""
        self.lock = threading.Lock()
        self._families: list[Family[Number] | Family[Distribution]] = []

    def add_counter(self, name: str, text: str, *labels: str) -> Family[Number]:
        """Add a counter, whose name ends in `_total`."""

        def tell(numbers: dict[tuple[str, ...], Number]) -> Metric:
            family = CounterMetricFamily(name, text, labels=labels)
            for values, number in numbers.items():
                family.add_metric(values, number.value)
            return family

        return self._add_numbers(tell)

    def add_gauge(self, name: str, text: str, *labels: str) -> Family[Number]:
        """Add a gauge."""

        def tell(numbers: dict[tuple[str, ...], Number]) -> Metric:
            family = GaugeMetricFamily(name, text, labels=labels)
            for values, number in numbers.items():
                family.add_metric(values, number.value)
            return family

        return self._add_numbers(tell)

    def add_histogram(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> Family[Distribution]:
        """Add a histogram; `bounds` ascend, the last bucket has none."""
        names = [floatToGoString(each) for each in (*bounds, math.inf)]  # type: ignore[no-untyped-call]

        def tell(distributions: dict[tuple[str, ...], Distribution]) -> Metric:
            family = HistogramMetricFamily(name, text, labels=labels)
            for values, each in distributions.items():
                counts = itertools.accumulate(each.counts)
                family.add_metric(values, [*zip(names, counts, strict=True)], each.sum)
            return family

        family = Family(lambda: Distribution(bounds), tell)
        self._families.append(family)
        return family

    def collect(self) -> Iterator[Metric]:
        """Tell all families, as they stand at one moment."""
        with self.lock:
            families = [family.tell() for family in self._families]
        yield from families

    def _add_numbers(
        self, tell: Callable[[dict[tuple[str, ...], Number]], Metric]
    ) -> Family[Number]:
        family = Family(Number, tell)
        self._families.append(family)
        return family
