from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model.distill import (
    ANSWERS_FILE,
    FILTERS,
    JOB_FILE,
    PAIRS_FILE,
    REPORT_FILE,
    Answer,
    Report,
    filter_pairs,
    open_job,
    translate_rest,
)
from model.errors import DataError
from model.pair_filters import FilterLimits

LINES = ["one house", "two houses", "", "bad", "long", "two houses", "tab\there"]
TEACHER = {"model": "upper", "beam_size": 1}
LIMITS = FilterLimits(keep_copies=True)


class Killed(Exception):
    """Stands for a process that ends at any moment."""


def _answer(text: str) -> Answer:
    return Answer(
        text="" if text == "bad" else text.upper(),
        truncated=text == "long",
        error="too long" if text == "bad" else "",
    )


def _teacher(*, dies_after: int | None = None) -> Callable[[Iterator[str]], Iterator[Answer]]:
    def translate(texts: Iterator[str]) -> Iterator[Answer]:
        for number, text in enumerate(texts):
            if number == dies_after:
                raise Killed
            yield _answer(text)

    return translate


def _write(folder: Path, lines: list[str] = LINES) -> Path:
    path = folder / "text.en"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _run(source: Path, output: Path, *, dies_after: int | None = None) -> Report:
    assert open_job(source, output, TEACHER) == len(LINES)
    translate_rest(source, output, _teacher(dies_after=dies_after))
    return filter_pairs(source, output, LIMITS)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_pairs_are_kept_in_order_and_removed_ones_counted(tmp_path: Path) -> None:
    report = _run(_write(tmp_path), tmp_path / "job")
    assert (tmp_path / "job" / PAIRS_FILE).read_text(encoding="utf-8") == (
        "one house\tONE HOUSE\ntwo houses\tTWO HOUSES\ntab here\tTAB HERE\n"
    )
    counts = {"failed": 1, "truncated": 1, "empty": 1, "duplicate": 1}
    assert report == Report(
        lines=7, kept=3, removed={name: counts.get(name, 0) for name in FILTERS}
    )
    written = json.loads((tmp_path / "job" / REPORT_FILE).read_text())
    assert written["removed"] == report.removed
    assert written["limits"]["max_repeats"] == 3


def test_killed_job_ends_with_the_files_of_one_that_was_not(tmp_path: Path) -> None:
    source = _write(tmp_path)
    _run(source, tmp_path / "straight")
    expected = _files(tmp_path / "straight")
    answers = expected[ANSWERS_FILE]
    for cut in range(len(answers) + 1):  # a process may be killed behind any byte
        job = tmp_path / f"killed-{cut}"
        open_job(source, job, TEACHER)
        (job / ANSWERS_FILE).write_bytes(answers[:cut])
        _run(source, job)
        assert _files(job) == expected


def test_what_was_translated_is_not_translated_again(tmp_path: Path) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    with pytest.raises(Killed):
        _run(source, job, dies_after=4)
    seen: list[str] = []
    told: list[int] = []

    def translate(texts: Iterator[str]) -> Iterator[Answer]:
        for text in texts:
            seen.append(text)
            yield _answer(text)

    translate_rest(source, job, translate, told.append)
    assert seen == LINES[4:]
    assert told == [4, 1, 1, 1]


def test_line_of_zeros_after_a_power_failure_is_dropped(tmp_path: Path) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    open_job(source, job, TEACHER)
    whole = b'{"text": "ONE HOUSE", "truncated": false, "error": ""}\n'
    (job / ANSWERS_FILE).write_bytes(whole + b"\0" * 30 + b"\n" + whole)
    assert _run(source, job).lines == len(LINES)


def test_other_text_or_other_teacher_is_refused(tmp_path: Path) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    open_job(source, job, TEACHER)
    with pytest.raises(
        DataError, match=r"other teacher or other options: `beam_size` [^,]+, now 4\.$"
    ):
        open_job(source, job, {**TEACHER, "beam_size": 4})
    with pytest.raises(DataError, match="begun with another text"):
        open_job(_write(tmp_path, ["something else"]), job, TEACHER)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"lines": 7}'])
def test_broken_description_of_a_job_is_named(tmp_path: Path, content: str) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    open_job(source, job, TEACHER)
    (job / JOB_FILE).write_text(content)
    with pytest.raises(DataError, match=f"{JOB_FILE}: is broken"):
        open_job(source, job, TEACHER)


def test_two_processes_do_not_work_on_one_job(tmp_path: Path) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    open_job(source, job, TEACHER)

    def translate(texts: Iterator[str]) -> Iterator[Answer]:
        with pytest.raises(DataError, match="another process is at work"):
            translate_rest(source, job, _teacher())
        return map(_answer, texts)

    translate_rest(source, job, translate)
    assert filter_pairs(source, job, LIMITS).lines == len(LINES)


def test_teacher_that_leaves_a_line_out_is_found_out(tmp_path: Path) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    open_job(source, job, TEACHER)
    with pytest.raises(DataError, match="7 lines were translated, but 0 answers"):
        translate_rest(source, job, lambda texts: iter([_ for _ in texts if False]))


def test_text_that_is_not_utf_8_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = tmp_path / "text.en"
    source.write_bytes(b"good\nb\xffd\n")
    with pytest.raises(DataError, match=r"text\.en:2: is not UTF-8"):
        open_job(source, tmp_path / "job", TEACHER)
    assert not (tmp_path / "job").exists()


def test_filtering_again_with_other_limits_needs_no_teacher(tmp_path: Path) -> None:
    source, job = _write(tmp_path), tmp_path / "job"
    _run(source, job)
    report = filter_pairs(source, job, FilterLimits(keep_copies=True, keep_duplicates=True))
    assert report.kept == 4
    assert report.removed["duplicate"] == 0


def test_untranslated_lines_are_removed_by_their_language(tmp_path: Path) -> None:
    english = [f"the {word} was near the house number {n}" for n in range(300) for word in WORDS]
    source, job = _write(tmp_path, english), tmp_path / "job"
    open_job(source, job, TEACHER)

    def translate(texts: Iterator[str]) -> Iterator[Answer]:
        for number, text in enumerate(texts):
            words = text.split()
            right = f"o {WORDS[words[1]]} estava perto da casa com o número {words[-1]}"
            yield Answer(text=f"yes, {text}" if number % 100 == 50 else right)

    translate_rest(source, job, translate)
    report = filter_pairs(source, job, FilterLimits())
    assert report.removed["language"] == 12
    assert report.kept == 1200 - 12


WORDS = {"train": "comboio", "garden": "jardim", "teacher": "professor", "bridge": "viaduto"}
