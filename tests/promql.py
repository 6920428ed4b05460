"""What a PromQL expression asks for, what the project's rules record, and what a server exports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from prometheus_client import CollectorRegistry

from service.grpc_server import METHODS
from service.metrics import ModelInfo, ModelLimits, PrometheusObserver

TARGET_LABELS = {"instance", "job", "namespace"}
"""What Prometheus adds to every series that it scrapes."""

RULE_FILES = sorted((Path(__file__).parents[1] / "deploy" / "prometheus" / "rules").glob("*.yml"))
RULES: list[dict[str, Any]] = [
    rule
    for path in RULE_FILES
    for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}

Samples = dict[str, list[dict[str, str]]]

_COMBINING = {"and", "or", "unless", "==", "!=", ">", "<", ">=", "<="}


def nodes(expression: Any) -> Iterator[Any]:
    """Walk over an expression and all its parts."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "args", "vector_selector"):
        value = getattr(expression, name, None)
        for part in value if isinstance(value, list) else [value]:
            if part is not None and hasattr(part, "prettify"):
                yield from nodes(part)


def selectors(text: str) -> list[Any]:
    """Every selector of a metric in an expression."""
    parsed = promql_parser.parse(text)
    return [node for node in nodes(parsed) if isinstance(node, promql_parser.VectorSelector)]


def operands(text: str) -> list[str]:
    """What an alert compares and combines: each part gives data, though the alert gives none while all is well."""
    found: list[str] = []

    def split(node: Any) -> None:
        if isinstance(node, promql_parser.ParenExpr):
            split(node.expr)
        elif isinstance(node, promql_parser.BinaryExpr) and str(node.op) in _COMBINING:
            split(node.lhs)
            split(node.rhs)
        elif isinstance(node, promql_parser.Call) and node.func.name == "absent":
            split(node.args[0])
        elif not _is_number(node):
            found.append(node.prettify())

    split(promql_parser.parse(text))
    return found


def _is_number(node: Any) -> bool:
    return not any(isinstance(each, promql_parser.VectorSelector) for each in nodes(node))


def exported_samples() -> Samples:
    """Every sample that a server with one model shows, by name."""
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    observer.start_methods(METHODS)
    observer.start_model(
        ModelInfo(
            model="en-pt",
            version="1",
            source="en",
            target="pt",
            provider="cpu",
            precision="int8",
            threads=1,
        ),
        ModelLimits(queue=1, rows=1, kv_bytes=1),
    )
    samples: Samples = {}
    for family in registry.collect():
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample.labels)
    return samples


def faults(text: str, samples: Samples) -> list[str]:
    """Tell what an expression asks for that no server exports and no rule records."""
    found = []
    for selector in selectors(text):
        if selector.name in RECORDED or selector.name == "up":
            continue
        if selector.name not in samples:
            found.append(f"there is no metric {selector.name}")
            continue
        found += _label_faults(selector, samples[selector.name])
    return found


def _label_faults(selector: Any, series: list[dict[str, str]]) -> Iterator[str]:
    for matcher in selector.matchers.matchers:
        if matcher.name in TARGET_LABELS or "$" in matcher.value:
            continue
        values = {labels[matcher.name] for labels in series if matcher.name in labels}
        if not values:
            yield f"{selector.name} has no label {matcher.name}"
        for wanted in matcher.value.split("|"):
            if not any(re.fullmatch(wanted, value) for value in values):
                yield f"{selector.name} has no {matcher.name}={wanted}"
