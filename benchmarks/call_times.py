"""What became of calls that came in at given times, and the figures that are told of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["CallTime", "Figures", "describe", "percentile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """One call of an open loop."""

    num_texts: int
    scheduled: float
    """When it should have been sent, in seconds after the beginning."""
    sent: float
    """When it was."""
    ended: float
    answered: bool
    """False: it ended with an error."""

    @property
    def seconds(self) -> float:
        """From the scheduled time on: a client that is late itself must not hide that others wait."""
        return self.ended - self.scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Calls of one kind."""

    count: int
    failed: int
    p50: float
    """Seconds; a call that failed took for ever."""
    p95: float
    p99: float
    goodput: float
    """Calls that were answered before the deadline, as a share of all."""


def describe(calls: Iterable[CallTime], deadline_seconds: float) -> Figures:
    """Put calls of one kind together. There must be one at least."""
    calls = list(calls)
    seconds = [call.seconds if call.answered else float("inf") for call in calls]
    return Figures(
        count=len(calls),
        failed=sum(not call.answered for call in calls),
        p50=percentile(seconds, 0.50),
        p95=percentile(seconds, 0.95),
        p99=percentile(seconds, 0.99),
        goodput=sum(each <= deadline_seconds for each in seconds) / len(calls),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as this share of all: a value that was measured."""
    return float(np.quantile(values, share, method="inverted_cdf"))
