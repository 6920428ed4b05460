"""How long does a server take from its process's start to health saying SERVING?"""

from __future__ import annotations

import statistics

from benchmarks.models import EMBEDDED_BUNDLE
from benchmarks.part import Result
from benchmarks.server import start_server
from benchmarks.stand import Stand

__all__ = ["measure"]

_STARTS = 3


def measure(stand: Stand) -> Result:
    """Seconds with one embedded bundle: the median of a few starts."""
    seconds: list[float] = []
    for _ in range(_STARTS):
        with start_server([EMBEDDED_BUNDLE]) as server:
            seconds.append(server.start_seconds)
    return Result(
        ratios={"start.seconds": statistics.median(seconds)},
        samples={"start.seconds": {"server": seconds}},
    )
