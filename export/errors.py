"""Errors of export and of bundles.

ExportError
  BundleError      a bundle that cannot be used: one message that lists every fault
  ParityError      a graph that does not do what the torch model does: lists every fault
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BundleError", "ExportError", "ParityError"]


class ExportError(Exception):
    """A model cannot be exported or a bundle cannot be used."""


class _FaultListError(ExportError):
    """An error that carries every fault that was found, not only the first."""

    def __init__(self, subject: str, faults: Sequence[str]) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        super().__init__(f"{subject}: " + "; ".join(self.faults))


class BundleError(_FaultListError):
    """A bundle is missing, truncated, edited, of a newer format, or names files outside itself."""


class ParityError(_FaultListError):
    """Exported graphs and the torch model disagree."""
