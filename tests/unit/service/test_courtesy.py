"""The thread of the event loop is courteous while many calls run."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from service.active_calls import ActiveCalls
from service.courtesy import Courtesy


def test_many_calls_make_it_courteous_until_there_are_few() -> None:
    changes: list[bool] = []
    courtesy = Courtesy(changes.append)
    counts = [1, 15, 16, 17, 15, 8, 7, 8, 15, 16]
    after = []
    for count in counts:
        courtesy.note_calls(count)
        after.append(len(changes))
    assert changes == [True, False, True]
    assert after == [0, 0, 1, 1, 1, 1, 2, 2, 2, 3]


def test_where_it_is_not_allowed_it_is_tried_once() -> None:
    attempts: list[bool] = []

    def refuse(is_courteous: bool) -> None:
        attempts.append(is_courteous)
        raise PermissionError

    courtesy = Courtesy(refuse)
    for count in (16, 17, 7, 16):
        courtesy.note_calls(count)
    assert attempts == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="policies of Linux")
def test_the_policy_is_that_of_the_thread_that_calls() -> None:
    policies: list[int] = []

    def run() -> None:
        active = ActiveCalls(on_change=Courtesy().note_calls)
        for _ in range(16):
            active.__enter__()
        policies.append(os.sched_getscheduler(0))
        for _ in range(16):
            active.__exit__()
        policies.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert policies == [os.SCHED_BATCH, os.SCHED_OTHER]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
