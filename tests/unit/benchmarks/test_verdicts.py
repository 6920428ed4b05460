"""A measurement that cannot fail measures nothing."""

from benchmarks.corpus import load_texts
from benchmarks.independence import _count_differences
from benchmarks.step_position import _around


def test_an_answer_differs_by_its_text_or_its_last_bit() -> None:
    alone = [("a", -0.5), ("b", -1.0), ("c", -2.0)]
    crowd = [("a", -0.5), ("B", -1.0), ("c", -2.0000000000000004)]

    assert _count_differences(alone, crowd) == 2


def test_steps_around_a_position_of_every_run_count() -> None:
    runs = [[0.0] * 5 + [1.0] * 10 + [9.0] * 50, [0.0] * 5 + [3.0] * 10 + [9.0] * 50]

    assert _around(runs, 10) == 2.0


def test_blank_lines_are_no_texts(tmp_path) -> None:
    path = tmp_path / "texts"
    path.write_text("one\n\n  \ntwo\n")

    assert load_texts(path) == ["one", "two"]
    assert len(load_texts()) > 10
