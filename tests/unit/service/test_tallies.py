"""Tallies are told as the metrics of prometheus_client would be."""

from __future__ import annotations

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from service.tallies import Tallies

BOUNDS = (0.005, 1.0, 2.5, 10.0)
VALUES = (-1.0, 0.0, 0.005, 0.0051, 1.0, 2.5, 2.6, 10.0, 11.0, 1e9)


def _theirs() -> CollectorRegistry:
    registry = CollectorRegistry()
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    counter = prometheus_client.Counter("c_total", "Counts.", ("a", "b"), registry=registry)
    gauge = prometheus_client.Gauge("g_bytes", "Stands.", ("a",), registry=registry)
    histogram = prometheus_client.Histogram(
        "h_seconds", "Falls.", ("a",), buckets=BOUNDS, registry=registry
    )
    prometheus_client.Counter("empty_total", "Nothing yet.", ("a",), registry=registry)
    counter.labels("x", 'y"\n').inc(3)
    counter.labels("x", "z")
    gauge.labels("x").set(2**40)
    for value in VALUES:
        histogram.labels("x").observe(value)
    histogram.labels("y")
    return registry


def _ours() -> CollectorRegistry:
    registry = CollectorRegistry()
    tallies = Tallies()
    counter = tallies.add_counter("c_total", "Counts.", "a", "b")
    gauge = tallies.add_gauge("g_bytes", "Stands.", "a")
    histogram = tallies.add_histogram("h_seconds", "Falls.", ("a",), BOUNDS)
    tallies.add_counter("empty_total", "Nothing yet.", "a")
    counter.labels("x", 'y"\n').value += 3
    counter.labels("x", "z")
    gauge.labels("x").value = 2**40
    for value in VALUES:
        histogram.labels("x").observe(value)
    histogram.labels("y")
    registry.register(tallies)
    return registry


@pytest.mark.parametrize("write", [generate_latest, generate_openmetrics])
def test_a_scrape_reads_as_one_of_the_library_does(write: object) -> None:
    assert callable(write)
    assert write(_ours()) == write(_theirs())


def test_a_tally_is_the_same_each_time_it_is_asked_for() -> None:
    family = Tallies().add_counter("c_total", "Counts.", "a")
    assert family.labels("x") is family.labels("x")
    assert family.labels("x") is not family.labels("y")
