from __future__ import annotations

import pytest

from service.scheduler.lanes import Lane, Turns


def take_turns(turns: Turns, costs: dict[Lane, float], count: int) -> dict[Lane, float]:
    seconds = dict.fromkeys(Lane, 0.0)
    for _ in range(count):
        lane = turns.choose()
        turns.charge(lane, costs[lane])
        seconds[lane] += costs[lane]
    return seconds


def test_documents_get_half_of_the_time_whatever_a_step_costs() -> None:
    seconds = take_turns(Turns(), {Lane.SHORT: 0.0005, Lane.DOCUMENTS: 0.004}, 1000)
    assert seconds[Lane.DOCUMENTS] / sum(seconds.values()) == pytest.approx(0.5, abs=0.01)


def test_short_requests_are_first() -> None:
    assert Turns().choose() is Lane.SHORT


def test_turns_are_taken_by_a_clock_that_stands_still() -> None:
    turns = Turns()
    chosen = []
    for _ in range(10):
        chosen.append(turns.choose())
        turns.charge(chosen[-1], 0.0)
    assert chosen.count(Lane.DOCUMENTS) == 5


def test_nobody_owes_anything_after_one_was_alone() -> None:
    turns = Turns()
    turns.charge(Lane.SHORT, 100.0)
    turns.forget()
    assert turns.choose() is Lane.SHORT
    turns.charge(Lane.SHORT, 1.0)
    turns.charge(Lane.DOCUMENTS, 1.0)
    assert turns.choose() is Lane.SHORT
