"""docs/monitoring.md speaks of alerts, metrics, spans and settings that exist, and of all of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from service.config import LogConfig, TracingConfig
from tests.promql import RECORDED, RULES, exported_samples

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
RUNBOOKS = (ROOT / "docs" / "runbooks" / "README.md").read_text("utf-8")
TRACING = (ROOT / "service" / "tracing.py").read_text("utf-8")


def _severities() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rule in RULES:
        if "alert" in rule:
            found.setdefault(str(rule["alert"]), set()).add(rule["labels"]["severity"])
    return found


def test_every_alert_is_in_both_tables_with_its_severities() -> None:
    for text in (PAGE, RUNBOOKS):
        rows = re.findall(r"^\| \W*(Dragoman\w+)\W.*? \| ([a-z, ]+) \|", text, re.MULTILINE)
        assert {name: set(severities.split(", ")) for name, severities in rows} == _severities()


def test_every_metric_that_is_named_exists() -> None:
    names = set(exported_samples())
    names |= {re.sub("_(bucket|sum|count)$", "", name) for name in names}
    for name in re.findall(r"`((?:dragoman|grpc_server|process)_\w+)`", PAGE):
        assert name in names, name
    for name in re.findall(r"`(job\w*:[\w:]+)`", PAGE):
        assert name in RECORDED, name


def test_every_span_and_every_attribute_is_told() -> None:
    attributes = set(re.findall(r'"((?:dragoman|rpc|error)\.[\w.]+)"', TRACING))
    assert len(attributes) > 10
    for name in attributes | {"prepare", "sentence", "queue", "encode", "decode", "detokenize"}:
        assert f"`{name}`" in PAGE, name


def test_every_setting_of_log_and_tracing_is_told() -> None:
    for field in dataclasses.fields(TracingConfig):
        assert f"\n{field.name} = " in PAGE
    for field in dataclasses.fields(LogConfig):
        if field.name != "level":
            assert f"`log.{field.name}`" in PAGE


def test_its_links_and_pictures_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#\w+)?\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
