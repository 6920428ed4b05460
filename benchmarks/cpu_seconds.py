"""How much processor time processes took while something went on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

__all__ = ["CpuSeconds", "watch_cpu"]


@dataclass(slots=True)
class CpuSeconds:
    """Processor time; there at the end of the `with` statement."""

    server: float = 0.0
    client: float = 0.0
    """This process."""
    others: float = 0.0
    """All other processes of the machine: what disturbs a measurement."""
    wall: float = 0.0
    """Seconds that went by."""


@contextlib.contextmanager
def watch_cpu(server_process_id: int | None = None) -> Iterator[CpuSeconds]:
    """Watch this process, and a server's."""
    seconds = CpuSeconds()
    watched = {"client": os.getpid()}
    if server_process_id is not None:
        watched["server"] = server_process_id
    began = time.monotonic()
    before = {name: _cpu_seconds(process_id) for name, process_id in watched.items()}
    all_before = _all_cpu_seconds()
    yield seconds
    seconds.wall = time.monotonic() - began
    for name, process_id in watched.items():
        setattr(seconds, name, _cpu_seconds(process_id) - before[name])
    everything = _all_cpu_seconds() - all_before
    seconds.others = max(0.0, everything - seconds.server - seconds.client)


def _cpu_seconds(process_id: int) -> float:
    times = psutil.Process(process_id).cpu_times()
    return float(times.user + times.system)


def _all_cpu_seconds() -> float:
    """Processor time that was not idle since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0)
    return float(sum(times) - idle)
