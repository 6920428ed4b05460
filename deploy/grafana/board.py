"""What a dashboard says, apart from how Grafana writes it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CALLS",
    "JOB",
    "MODEL",
    "SERVER",
    "Board",
    "Panel",
    "Query",
    "Row",
    "mean",
    "quantile",
    "rate",
]

Kind = Literal["timeseries", "stat", "table", "heatmap"]
Unit = Literal["none", "s", "bytes", "percentunit", "reqps", "cps", "cores"]
"""Grafana's names; "cores" is shown as it is."""

JOB = 'namespace=~"$namespace", job=~"$job"'
"""Matchers of what the rules record."""
SERVER = f'{JOB}, instance=~"$instance"'
"""Matchers of what a server tells of itself."""
MODEL = f'{SERVER}, model=~"$model"'
"""Matchers of what it tells of a model."""
CALLS = f'{SERVER}, grpc_service="dragoman.v1.TranslationService"'
"""Matchers of calls, without probes and reflection."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    expr: str
    legend: str
    """With labels as `{{model}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    is_stacked: bool = False
    max: float | None = None
    width: int = 8
    """Of 24 columns."""
    height: int = 7
    warn_above: float | None = None
    """Drawn as a line, or as the colour of a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels that answer one question."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def rate(metric: str, matchers: str, *by: str) -> str:
    """Sum of rates, one series for each value of the labels."""
    return f"sum{_by(by)} (rate({metric}{{{matchers}}}[$__rate_interval]))"


def mean(histogram: str, matchers: str, *by: str) -> str:
    """Mean of a histogram."""
    return (
        f"{rate(f'{histogram}_sum', matchers, *by)} / {rate(f'{histogram}_count', matchers, *by)}"
    )


def quantile(q: float, histogram: str, matchers: str, *by: str) -> str:
    """Quantile of a histogram."""
    return f"histogram_quantile({q:g}, {rate(f'{histogram}_bucket', matchers, *by, 'le')})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
