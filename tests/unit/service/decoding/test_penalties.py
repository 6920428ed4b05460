from __future__ import annotations

import math

import pytest

from service.decoding.penalties import length_divisor, score


def test_alpha_zero_compares_sums() -> None:
    assert score(-3.0, 7, 0.0) == -3.0


def test_alpha_one_compares_means() -> None:
    assert score(-3.0, 6, 1.0) == -0.5


def test_alpha_between_is_a_power_of_the_length() -> None:
    assert score(-3.0, 9, 0.5) == pytest.approx(-1.0)


def test_a_longer_hypothesis_may_cost_more() -> None:
    divisors = [length_divisor(length, 0.6) for length in range(1, 50)]
    assert divisors == sorted(divisors)
    assert math.isclose(divisors[0], 1.0)
