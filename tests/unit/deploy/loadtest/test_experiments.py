from __future__ import annotations

import grpc
import pytest

from deploy.loadtest.clients import Call
from deploy.loadtest.experiments import _Counters, _judge, _throughput

OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


def _call(began: float, ended: float, code: grpc.StatusCode = OK) -> Call:
    return Call(began, ended, code, texts=4, characters=100)


def test_a_call_counts_by_its_share_of_the_window() -> None:
    calls = [_call(9, 11), _call(11, 13), _call(19, 23), _call(0, 5), _call(30, 31)]
    found = _throughput(calls, _Counters(10, 3, 500), _Counters(20, 8, 700))

    assert found.texts_a_second == pytest.approx((2 + 4 + 1) / 10)
    assert found.characters_a_second == pytest.approx((50 + 100 + 25) / 10)
    assert found.target_tokens_a_second == pytest.approx(20)
    assert found.cpus == pytest.approx(0.5)


def test_a_death_that_nobody_notices_has_no_failure() -> None:
    death = _judge([_call(0, 1), _call(1, 2), _call(2, 3), _call(3, 4)], killed=1.5)

    assert (death.calls, death.failed, death.last_failure_seconds) == (4, 0, 0.0)
    assert death.usual_seconds == 1
    assert death.without_answer_seconds == 1
    assert death.slowest_seconds == 1


def test_the_last_call_that_fails_tells_how_long_a_death_hurts() -> None:
    calls = [_call(0, 1), _call(1, 1.75, UNAVAILABLE), _call(1.75, 2, UNAVAILABLE), _call(2, 5)]
    death = _judge(calls, killed=1.5)

    assert death.failed == 2
    assert death.last_failure_seconds == 0.5
    assert death.without_answer_seconds == 3.5
    assert death.slowest_seconds == 3
