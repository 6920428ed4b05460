"""The figures of a server under load say what happened, also when the clients are late."""

from __future__ import annotations

import asyncio
import itertools
import math

import grpc
import pytest

from benchmarks.arrivals import BULK_TEXTS, Arrival, draw_mix, poisson_arrivals
from benchmarks.call_times import CallTime, describe, percentile
from benchmarks.closed_loop import run_closed_loop
from benchmarks.open_loop import run_open_loop
from tests.instant_loop import InstantLoop, run_instantly

TEXTS = ("a", "b", "c", "d", "e")


def _call(seconds: float, *, answered: bool = True) -> CallTime:
    return CallTime(num_texts=1, scheduled=1.0, sent=1.0, ended=1.0 + seconds, answered=answered)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([*range(100, 0, -1)], share) == expected


def test_one_slow_call_of_fifty_is_the_99th_percentile() -> None:
    assert percentile([0.1] * 49 + [9.0], 0.99) == 9.0


def test_goodput_counts_what_was_answered_in_time() -> None:
    calls = [_call(0.25), _call(0.5), _call(0.75), _call(0.1, answered=False)]
    figures = describe(calls, 0.5)
    assert figures.goodput == 0.5
    assert (figures.count, figures.failed) == (4, 1)
    assert figures.p50 == 0.5
    assert math.isinf(figures.p99)  # a call that failed is not a fast one


def test_arrivals_are_as_many_as_the_rate_says_one_in_ten_a_document() -> None:
    arrivals = poisson_arrivals(20.0, 10.0, TEXTS, seed=3)
    assert len(arrivals) == 200
    sizes = [len(arrival.texts) for arrival in arrivals]
    assert (sizes.count(1), sizes.count(BULK_TEXTS)) == (180, 20)
    times = [arrival.at for arrival in arrivals]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= 10.0


def test_gaps_between_arrivals_vary_as_those_of_a_poisson_process_do() -> None:
    times = [arrival.at for arrival in poisson_arrivals(100.0, 100.0, TEXTS, seed=5)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    longer = sum(gap > mean for gap in gaps) / len(gaps)
    assert longer == pytest.approx(math.exp(-1), abs=0.02)


def test_the_same_seed_draws_the_same_calls_and_another_does_not() -> None:
    first, again, other = (poisson_arrivals(20.0, 5.0, TEXTS, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert draw_mix(40, TEXTS, 1) != draw_mix(40, TEXTS, 2)


def test_calls_are_sent_at_their_times_though_earlier_ones_are_not_answered() -> None:
    async def send(number: int) -> None:
        await asyncio.sleep(10.0)

    calls = run_instantly(run_open_loop([Arrival(at, ("a",)) for at in (0.5, 1.0, 4.0)], send))
    assert [call.sent for call in calls] == [0.5, 1.0, 4.0]
    assert [call.seconds for call in calls] == [10.0, 10.0, 10.0]


def test_a_client_that_is_late_adds_to_the_latency() -> None:
    async def send(number: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, InstantLoop)
        if number == 0:
            loop.advance(3.0)  # holds up the clients themselves
        await asyncio.sleep(0.25)

    arrivals = [Arrival(1.0, ("a",)), Arrival(2.0, ("a", "b")), Arrival(6.0, ("c",))]
    calls = run_instantly(run_open_loop(arrivals, send))
    assert [call.sent for call in calls] == [1.0, 4.0, 6.0]
    assert [call.seconds for call in calls] == [3.25, 2.25, 0.25]
    assert [call.num_texts for call in calls] == [1, 2, 1]


def test_a_call_that_fails_is_told_as_failed_and_the_others_go_on() -> None:
    async def send(number: int) -> None:
        await asyncio.sleep(0.1)
        if number == 1:
            raise grpc.RpcError

    calls = run_instantly(run_open_loop([Arrival(0.0, ("a",))] * 3, send))
    assert [call.answered for call in calls] == [True, False, True]


def test_a_closed_loop_counts_what_ends_after_the_warm_up() -> None:
    async def send(number: int) -> None:
        await asyncio.sleep(0.3)

    found = run_instantly(run_closed_loop(send, 4, warm_seconds=1.0, seconds=3.0))
    assert found.throughput == pytest.approx(4 * 10 / 3)  # each client ends calls at 1.2 ... 3.9
    assert found.percentile(0.99) == pytest.approx(0.3)
    assert found.num_calls == 4 * 14
