"""A real Prometheus scrapes a real server under load: every rule and every panel has data."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server import start_server
from deploy.grafana.__main__ import DIRECTORY
from deploy.grafana.pictures import draw_dashboard
from deploy.grafana.queries import panels_of, with_variables
from deploy.grafana.traffic import drive
from deploy.prometheus.local import Prometheus, find_prometheus, start_prometheus
from tests.promql import RECORDED, RULES, operands

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_prometheus() is None,
        reason="prometheus is not installed (Debian: apt-get install prometheus)",
    ),
]

LOAD_SECONDS = 25.0
IDLE_SECONDS = 15.0
RATE_INTERVAL = "1m"


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """A Prometheus that has watched a server under load, and still does."""
    with start_server() as server:
        target = urllib.parse.urlsplit(server.metrics_url).netloc
        with start_prometheus([target]) as prometheus:
            drive(server.address, LOAD_SECONDS)
            yield prometheus


def _dashboards() -> list[Any]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(DIRECTORY.glob("*.json"))]


def _without_data(prometheus: Prometheus, expressions: list[str]) -> list[str]:
    return [
        expression
        for expression in expressions
        if not any(series.has_number for series in prometheus.query(expression))
    ]


def test_every_rule_is_evaluated_without_a_fault(prometheus: Prometheus) -> None:
    rules = prometheus.rules()
    assert len(rules) == len(RULES)
    assert {
        rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"
    } == {}


def test_every_recorded_series_has_data(prometheus: Prometheus) -> None:
    assert _without_data(prometheus, sorted(RECORDED)) == []


def test_everything_that_an_alert_compares_has_data(prometheus: Prometheus) -> None:
    compared = [part for rule in RULES if "alert" in rule for part in operands(rule["expr"])]
    assert _without_data(prometheus, compared) == []


def test_every_query_of_every_panel_has_data(prometheus: Prometheus) -> None:
    queries = [
        with_variables(target["expr"], rate_interval=RATE_INTERVAL)
        for dashboard in _dashboards()
        for panel in panels_of(dashboard)
        for target in panel["targets"]
    ]
    assert len(queries) > 50
    assert _without_data(prometheus, queries) == []


def test_a_query_without_data_would_be_found(prometheus: Prometheus) -> None:
    assert _without_data(prometheus, ["dragoman_nonsense", "0 * up / 0"]) != []


def test_every_choice_of_a_dashboard_has_values(prometheus: Prometheus) -> None:
    for label in ("job", "instance", "model"):
        (series,) = prometheus.query(
            f"count(count by ({label}) (dragoman_model_info{{{label}!=''}}))"
        )
        assert series.values[-1] >= 1


def test_every_panel_is_drawn(prometheus: Prometheus, tmp_path: Path) -> None:
    for dashboard in _dashboards():
        path = tmp_path / f"{dashboard['uid']}.png"
        empty = draw_dashboard(prometheus, dashboard, path, seconds=LOAD_SECONDS)
        assert empty == []
        assert path.stat().st_size > 50_000


def test_two_servers_that_nobody_calls_alert_nobody() -> None:
    with start_server() as first, start_server() as second:
        targets = [urllib.parse.urlsplit(each.metrics_url).netloc for each in (first, second)]
        with start_prometheus(targets) as prometheus:
            deadline = time.monotonic() + IDLE_SECONDS
            while time.monotonic() < deadline:
                time.sleep(1)
                pending = [dict(series.labels) for series in prometheus.query("ALERTS")]
            (servers,) = prometheus.query('count(dragoman_model_info{model="en-pt"})')
    assert servers.values[-1] == len(targets)
    assert pending == []
