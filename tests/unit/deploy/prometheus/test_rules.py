"""Rules and alerts ask for metrics that exist, and every alert has a runbook and a scenario in which it fires."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from service.grpc_server import METHODS
from service.metrics import PrometheusObserver
from tests.promql import RECORDED, RULE_FILES, RULES, exported_samples, faults, operands

ROOT = Path(__file__).resolve().parents[4]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
SCENARIOS = sorted((PROMETHEUS / "tests").glob("*.yml"))
TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)")


ALERTS = [rule for rule in RULES if "alert" in rule]
ALERT_NAMES = sorted({rule["alert"] for rule in ALERTS})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule_asks_for_what_exists(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"], exported_samples()) == []


def test_a_name_that_does_not_exist_would_be_found() -> None:
    samples = exported_samples()
    assert faults("rate(dragoman_nonsense_total[5m])", samples)
    assert faults('dragoman_guard_total{guard="nonsense"}', samples)
    assert faults('dragoman_guard_total{nonsense="truncated"}', samples)
    assert faults('grpc_server_handled_total{grpc_code=~"OK|NONSENSE"}', samples)
    assert faults('dragoman_queue_seconds_bucket{le="0.75"}', samples)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recorded_name_tells_its_labels_its_metric_and_what_was_done(name: str) -> None:
    assert re.fullmatch(r"job(_model)?:dragoman_\w+:\w+", name)
    (rule,) = [rule for rule in RULES if rule.get("record") == name]
    labels = "namespace, job, model" if name.startswith("job_model:") else "namespace, job"
    for grouping in re.findall(r"by \((.*?)\)", rule["expr"]):
        assert grouping in {labels, f"{labels}, le"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_is_wrong_how_urgent_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    annotations = alert["annotations"]
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert len(annotations["summary"]) > 10
    assert len(annotations["description"]) > len(annotations["summary"]) / 2
    runbook = ROOT / annotations["runbook_url"]
    assert runbook.is_file()
    assert runbook.stem == alert["alert"]
    assert operands(alert["expr"])


def test_every_runbook_belongs_to_an_alert_and_has_its_three_parts() -> None:
    assert sorted(path.stem for path in RUNBOOKS.glob("Dragoman*.md")) == ALERT_NAMES
    for path in RUNBOOKS.glob("Dragoman*.md"):
        text = path.read_text("utf-8")
        assert text.startswith(f"# {path.stem}\n")
        for part in ("## What it means", "## Look at", "## What to do"):
            assert part in text, f"{path.name} has no {part!r}"


def test_what_a_runbook_asks_prometheus_is_valid_and_exists() -> None:
    samples = exported_samples()
    for path in RUNBOOKS.glob("*.md"):
        for query in re.findall(r"```promql\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
            for expression in filter(None, query.split("\n\n")):
                promql_parser.parse(expression)
                assert faults(expression, samples) == [], f"{path.name}: {expression}"


def test_every_alert_of_every_severity_fires_in_a_scenario() -> None:
    fired = {
        (test["alertname"], alert["exp_labels"]["severity"])
        for path in SCENARIOS
        for scenario in yaml.safe_load(path.read_text("utf-8"))["tests"]
        for test in scenario.get("alert_rule_test", ())
        for alert in test["exp_alerts"]
    }
    assert fired == {(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS}


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", *map(str, RULE_FILES)],
        ["check", "config", "--syntax-only", str(PROMETHEUS / "prometheus.yml")],
        ["test", "rules", *map(str, SCENARIOS)],
    ],
    ids=["rules", "configuration", "scenarios"],
)
def test_promtool_agrees(arguments: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_the_names_and_types_of_our_metrics() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    registry = CollectorRegistry()
    PrometheusObserver(registry).start_methods(METHODS)
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=generate_latest(registry),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
