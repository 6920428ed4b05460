"""How much memory does a server hold that has answered a call?"""

from __future__ import annotations

from benchmarks.call import translate_once
from benchmarks.models import EMBEDDED_BUNDLE
from benchmarks.part import Result
from benchmarks.server import start_server
from benchmarks.stand import Stand

__all__ = ["measure"]


def measure(stand: Stand) -> Result:
    """Resident MB (of 10^6 bytes) of the serving process with one embedded bundle."""
    with start_server([EMBEDDED_BUNDLE]) as server:
        translate_once(server.address)
        resident = server.read_resident_bytes()
    return Result(ratios={"memory.rss_mb": resident / 1e6})
