"""So many lines a second are taken, and those that are not are counted until they are told of."""

from __future__ import annotations

import logging

from service.request_lines import RequestLines
from tests.fakes import FakeClock


def test_lines_are_taken_up_to_the_limit_in_each_second() -> None:
    clock = FakeClock()
    lines = RequestLines(2, clock=clock)
    assert [lines.take(logging.INFO) for _ in range(4)] == [0, 0, None, None]
    clock.advance(1.0)
    assert [lines.take(logging.INFO) for _ in range(3)] == [2, 0, None]


def test_warnings_have_lines_of_their_own() -> None:
    lines = RequestLines(1, clock=FakeClock())
    assert lines.take(logging.INFO) == 0
    assert lines.take(logging.WARNING) == 0
    assert lines.take(logging.ERROR) is None
    assert lines.take(logging.DEBUG) is None
    assert lines.pop_left_out() == 2
    assert lines.pop_left_out() == 0


def test_asking_before_a_record_is_made_costs_no_line_but_counts_what_is_left_out() -> None:
    clock = FakeClock()
    lines = RequestLines(1, clock=clock)
    assert not lines.leave_out(logging.INFO)
    assert not lines.leave_out(logging.INFO)
    assert lines.take(logging.INFO) == 0
    assert lines.leave_out(logging.INFO)
    assert lines.leave_out(logging.INFO)
    clock.advance(1.0)
    assert not lines.leave_out(logging.INFO)
    assert lines.take(logging.INFO) == 2


def test_no_lines_are_taken_where_none_may_be() -> None:
    clock = FakeClock()
    lines = RequestLines(0, clock=clock)
    clock.advance(5.0)
    assert lines.take(logging.ERROR) is None
    assert lines.pop_left_out() == 1
