"""Processor time that a measurement took."""

from __future__ import annotations

import os
import time

from benchmarks.cpu_seconds import watch_cpu

TICK_SECONDS = 0.02
"""The kernel counts in hundredths of a second."""


def _work(seconds: float) -> None:
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


def test_work_of_this_process_is_counted() -> None:
    with watch_cpu() as cpu:
        _work(0.2)
    assert 0.2 - TICK_SECONDS <= cpu.client <= cpu.wall + TICK_SECONDS
    assert cpu.server == 0.0
    assert cpu.others >= 0.0


def test_a_server_is_watched_by_its_process() -> None:
    with watch_cpu(os.getpid()) as cpu:
        _work(0.1)
    assert cpu.server >= 0.1 - TICK_SECONDS


def test_sleeping_takes_no_processor_time() -> None:
    with watch_cpu() as cpu:
        time.sleep(0.1)
    assert cpu.client <= 0.05
    assert cpu.wall >= 0.1
