"""The part of the chart's schema that describes `config`, made from the settings of the server.

So a name or a type that the server would refuse at its start is refused before anything is installed. `make manifests`
writes it; a test finds when it is stale.
"""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

from service.config import Config
from service.errors import ConfigError

__all__ = ["CHOICES", "SET_BY_CHART", "settings_schema", "with_settings"]

SET_BY_CHART = {
    ("server", "listen"),
    ("server", "endpoint_removal_seconds"),
    ("server", "drain_seconds"),
    ("metrics", "listen"),
    ("models", "bundles"),
}
"""Settings that have values of their own in the chart."""

CHOICES: dict[tuple[str, str], dict[str, Any]] = {
    ("engine", "provider"): {"enum": ["cpu", "cuda"]},
    ("log", "level"): {"enum": ["DEBUG", "INFO", "WARNING", "ERROR"]},
    ("tracing", "endpoint"): {"pattern": r"^(https?://[^\s/]+:[0-9]+/?)?$"},
}
"""What a text may be."""

# `helm --set` reads whole numbers as numbers, and 0.5 as a text.
_KINDS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": ["integer", "string"], "pattern": "^[0-9]+$"},
    float: {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$"},
    str: {"type": "string"},
}


def settings_schema() -> dict[str, Any]:
    """Describe every section, closed, without what the chart sets itself."""
    sections = typing.get_type_hints(Config)
    return _closed({name: _section(name, kind) for name, kind in sections.items()})


def with_settings(path: Path) -> str:
    """Give the chart's schema with the settings as they are now."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema["properties"]["config"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"


def _section(section: str, kind: Any) -> dict[str, Any]:
    properties = {}
    for name, each in typing.get_type_hints(kind).items():
        if (section, name) not in SET_BY_CHART:
            properties[name] = _field(kind, name, each) | CHOICES.get((section, name), {})
    return _closed(properties)


def _field(section: Any, name: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, types.UnionType):  # such as int | None: None is written "auto"
        (given,) = (each for each in typing.get_args(kind) if each is not type(None))
        return {"anyOf": [_field(section, name, given), {"const": "auto"}]}
    if kind in (int, float):
        return {**_KINDS[kind], "minimum": _lowest(section, name)}
    return dict(_KINDS[kind])


def _lowest(section: Any, name: str) -> int:
    """Ask a section whether a number may be zero."""
    try:
        section(**{name: 0})
    except ConfigError:
        return 1
    return 0


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
