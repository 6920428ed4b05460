"""The queries of a dashboard's JSON as Prometheus takes them: Grafana's variables are filled in."""

from __future__ import annotations

from typing import Any

__all__ = ["ALL", "panels_of", "with_variables"]

ALL = {"namespace": ".*", "job": ".*dragoman.*", "instance": ".*", "model": ".*"}
"""What "All" of each choice is. As in the rules, a job is ours by its name: others export CPU and memory, too."""


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """List the panels that show something, in their order."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def with_variables(expression: str, *, rate_interval: str) -> str:
    """Fill in the interval of rates, and "all" for every choice that a user has."""
    for name, every in ALL.items():
        expression = expression.replace(f'"${name}"', f'"{every}"')
    return expression.replace("$__rate_interval", rate_interval)
