"""What the autoscalers ask Prometheus: metrics that exist, and numbers that mean what they are compared with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests import DEPLOY, load_rendered, select_kind
from tests.promql import exported_samples, selectors

POD = 'namespace="dragoman",pod="dragoman-5d9c-x2k7p"'
OTHER = 'namespace="dragoman",pod="other-5d9c-x2k7p"'
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


def _keda() -> dict[str, str]:
    scaler = select_kind(load_rendered("keda"), "ScaledObject")
    return {each["name"]: each["metadata"]["query"] for each in scaler["spec"]["triggers"]}


def _adapter() -> dict[str, str]:
    """The queries of prometheus-adapter, as it asks them for the pods of a namespace."""
    values = yaml.safe_load((DEPLOY / "prometheus-adapter.yaml").read_text(encoding="utf-8"))
    return {
        rule["name"]["as"]: rule["metricsQuery"]
        .replace("<<.LabelMatchers>>", 'namespace="dragoman",pod=~"dragoman-.*"')
        .replace("<<.GroupBy>>", "pod")
        for rule in values["rules"]["custom"]
    }


QUERIES = {**_keda(), **_adapter()}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_the_metrics_exist(query: str) -> None:
    names = {selector.name for selector in selectors(query)}

    assert names
    assert names <= exported_samples().keys()


def _evaluate(directory: Path, series: dict[str, str], expected: dict[str, float]) -> None:
    """Let promtool feed series, a value a quarter of a minute, and compare what queries give after five minutes."""
    pod = '{pod="dragoman-5d9c-x2k7p"}'
    tests: list[dict[str, Any]] = [
        {
            "expr": QUERIES[name],
            "eval_time": "5m",
            "exp_samples": [{"labels": pod if name in _adapter() else "{}", "value": value}],
        }
        for name, value in expected.items()
    ]
    path = directory / "autoscaling_test.yml"
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "15s", "input_series": inputs, "promql_expr_test": tests}
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_under_load_they_are_the_mean_wait_and_the_rows_of_this_service_alone(
    tmp_path: Path,
) -> None:
    series = {
        f'dragoman_queue_seconds_sum{{{POD},model="en-pt"}}': "0+3x20",  # 0.2 s a sentence
        f'dragoman_queue_seconds_count{{{POD},model="en-pt"}}': "0+15x20",  # one a second
        f'dragoman_running_rows{{{POD},model="en-pt"}}': "100x20",
        f'dragoman_running_rows{{{POD},model="pt-en"}}': "28x20",
        f'dragoman_running_rows{{{OTHER},model="en-pt"}}': "1000x20",
    }
    rows, wait = 128, 0.2
    expected = {
        "queue-seconds": wait,
        "running-rows": rows,
        "dragoman_queue_seconds_mean": wait,
        "dragoman_running_rows": rows,
    }
    _evaluate(tmp_path, series, expected)


@needs_promtool
def test_without_traffic_the_wait_is_zero_and_not_nothing(tmp_path: Path) -> None:
    series = {
        f'dragoman_queue_seconds_sum{{{POD},model="en-pt"}}': "7x20",
        f'dragoman_queue_seconds_count{{{POD},model="en-pt"}}': "70x20",
    }
    _evaluate(tmp_path, series, {"queue-seconds": 0, "dragoman_queue_seconds_mean": 0})
