"""Runs the parts one after the other and collects what they found, or why they could not."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import describe_machine, versions
from benchmarks.part import CannotRunError, Result
from benchmarks.parts import Part
from benchmarks.stand import Stand
from benchmarks.targets import TARGETS

__all__ = ["Report", "run_parts"]


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that one run of `dragoman bench` found."""

    result: Result
    machine: dict[str, Any]
    versions: dict[str, str]
    quick: bool
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each part took."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a part, or one of its keys, has no number."""

    def to_json(self) -> dict[str, Any]:
        """The content of the JSON file: ratios first."""
        return {
            "ratios": self.result.ratios,
            "missing": self.missing,
            "targets": {key: str(target) for key, target in TARGETS.items()},
            "missed": self.missed(),
            "quick": self.quick,
            "machine": self.machine,
            "versions": self.versions,
            "absolutes": [
                {"what": each.what, "value": each.value, "unit": each.unit}
                for each in self.result.absolutes
            ],
            "notes": self.result.notes,
            "seconds": self.seconds,
            "samples": self.result.samples,
        }

    def missed(self) -> list[str]:
        """The keys whose floor or ceiling was measured and not met."""
        ratios = self.result.ratios
        return [
            key
            for key, target in TARGETS.items()
            if key in ratios and not target.is_met(ratios[key])
        ]


def run_parts(stand: Stand, parts: Iterable[Part], tell: Callable[[str], None]) -> Report:
    """Measure.

    Args:
        stand: What all parts share.
        parts: What to measure.
        tell: Is given one line before each part.
    """
    report = Report(
        result=Result(), machine=describe_machine(), versions=versions(), quick=stand.quick
    )
    for part in parts:
        tell(part.name)
        began = time.monotonic()
        try:
            report.result.merge(_measure(part, stand))
        except CannotRunError as error:
            report.missing.update(dict.fromkeys(part.keys or (part.name,), str(error)))
        report.seconds[part.name] = time.monotonic() - began
    return report


def _measure(part: Part, stand: Stand) -> Result:
    name = f"benchmarks.{part.module}"
    if importlib.util.find_spec(name) is None:
        raise CannotRunError("not built yet")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise CannotRunError(f"needs the module `{error.name}` (extra `bench`)") from error
    result: Result = module.measure(stand)
    return result
