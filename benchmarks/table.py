"""What a run found, as a table: ratios with their floors first, absolute numbers after them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group
from rich.table import Table

from benchmarks.run import Report
from benchmarks.targets import TARGETS

__all__ = ["print_report"]

_WHOLE_FROM = 1000.0


def print_report(report: Report, console: Console) -> None:
    """Print everything but the raw samples."""
    console.print(Group(*_lines(report), _ratios(report), _absolutes(report)))
    for note in report.result.notes:
        console.print(f"note: {note}")


def _lines(report: Report) -> Iterator[str]:
    for title, facts in (("machine", report.machine), ("versions", report.versions)):
        yield f"{title}: " + ", ".join(f"{name} {value}" for name, value in facts.items())


def _ratios(report: Report) -> Table:
    table = Table("ratio", "measured", "wanted", "")
    table.columns[0].no_wrap = True
    ratios, missing = report.result.ratios, report.missing
    for key, target in TARGETS.items():
        if key in ratios:
            verdict = "met" if target.is_met(ratios[key]) else "MISSED"
            table.add_row(key, f"{ratios[key]:.3g}", str(target), verdict)
        elif key in missing:
            table.add_row(key, "-", str(target), missing[key])
    for key, value in ratios.items():
        if key not in TARGETS:
            table.add_row(key, f"{value:.3g}", "", "")
    for name, reason in missing.items():
        if name not in TARGETS:
            table.add_row(name, "-", "", reason)
    return table


def _absolutes(report: Report) -> Table:
    table = Table("absolute", "value", "unit")
    for each in report.result.absolutes:
        digits = ",.0f" if abs(each.value) >= _WHOLE_FROM else ",.3g"
        table.add_row(each.what, format(each.value, digits), each.unit)
    return table
