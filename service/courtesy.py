"""While many calls run, the thread of the event loop lets engine threads finish their turns.

A thread that wakes may interrupt another, which then finds the processor's caches full of other things. With many calls
the event loop wakes a thousand times a second, each time for a little, and translating takes a twentieth longer for
it. Under Linux's policy SCHED_BATCH it waits until a turn ends, and does what has come together at once. With few calls
it is the wait that would be felt.
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["Courtesy"]

_MANY, _FEW = 16, 8
"""Calls from which on it is courteous, and below which it no longer is."""


def _change_policy(is_courteous: bool) -> None:
    """Change the policy of the thread that calls."""
    policy = os.SCHED_BATCH if is_courteous else os.SCHED_OTHER
    os.sched_setscheduler(0, policy, os.sched_param(0))


class Courtesy:
    """Whether the thread of the event loop is courteous. Used by that thread alone."""

    def __init__(self, change_policy: Callable[[bool], None] = _change_policy) -> None:
        """Take what changes the policy; it may raise OSError where that is not allowed."""
        self._change_policy = change_policy
        self._is_courteous = False
        self._is_possible = hasattr(os, "SCHED_BATCH")

    def note_calls(self, count: int) -> None:
        """So many calls run now."""
        is_courteous = count >= (_FEW if self._is_courteous else _MANY)
        if is_courteous == self._is_courteous or not self._is_possible:
            return
        try:
            self._change_policy(is_courteous)
        except OSError:
            self._is_possible = False
        else:
            self._is_courteous = is_courteous
