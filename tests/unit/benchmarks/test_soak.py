from __future__ import annotations

import pytest

from benchmarks.soak import check_memory, main

MIB = 2**20


@pytest.mark.parametrize(("end", "passed"), [(100, True), (104, True), (106, False), (80, True)])
def test_memory_may_grow_by_a_twentieth(end: int, passed: bool) -> None:
    assert check_memory([100 * MIB] * 6 + [end * MIB] * 2).passed is passed


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--seconds", "0"], "--seconds must be 20 at least"),
        (["--seconds", "nan"], "--seconds must be 20 at least"),
        (["--clients", "0"], "--clients must be 1 at least"),
    ],
)
def test_a_storm_that_tells_nothing_is_refused(
    words: list[str],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["soak", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert fault in capsys.readouterr().err


def test_a_moment_of_much_memory_is_no_growth() -> None:
    readings = [150 * MIB, *[300 * MIB] * 60]
    readings[-1] = 400 * MIB
    check = check_memory(readings)
    assert check.passed
    assert check.value == "300 -> 300 MiB (+0.0%)"


def test_what_grows_slowly_is_told() -> None:
    check = check_memory([(200 + number) * MIB for number in range(100)])
    assert not check.passed
    assert check.value == "262 -> 287 MiB (+9.5%)"


def test_what_grows_in_the_first_half_only_is_no_leak() -> None:
    assert check_memory([min(100 + number, 140) * MIB for number in range(100)]).passed


def test_two_readings_are_enough_to_compare() -> None:
    assert check_memory([100 * MIB, 100 * MIB]).passed
