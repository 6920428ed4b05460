"""What a measured quantity looks like: one module with one function `measure(stand)`, which gives a `Result`.

`benchmarks/parts.py` lists the modules; `dragoman bench` runs them one after the other. A part that cannot run here
raises `CannotRunError`, and the table says so in the place of a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.timing import Samples

__all__ = ["Absolute", "CannotRunError", "Result"]


class CannotRunError(Exception):
    """This quantity cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absolute:
    """A number with its unit, below the ratios in the table."""

    what: str
    value: float
    unit: str


@dataclass(slots=True, kw_only=True)
class Result:
    """What one part found."""

    ratios: dict[str, float] = field(default_factory=dict)
    """By the keys of `benchmarks/targets.py`; keys that it does not know are shown without a target."""
    absolutes: list[Absolute] = field(default_factory=list)
    samples: dict[str, Samples] = field(default_factory=dict)
    """Raw seconds of each run, by measurement and candidate."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the table must know."""

    def merge(self, other: Result) -> None:
        """Take in what another part found."""
        self.ratios.update(other.ratios)
        self.absolutes += other.absolutes
        self.samples.update(other.samples)
        self.notes += other.notes
