"""Sequence-level knowledge distillation (Kim and Rush 2016): what a teacher makes of a text becomes training data.

    job.json             what is translated by whom; a job that goes on must be the same
    translations.jsonl   the teacher's answer to every line, in order
    pairs.tsv            source TAB target of the pairs that no filter removed: what `dragoman train` takes
    report.json          how many pairs there are and what each filter removed

The answers are written line by line and only ever added to, so a job may be killed at any moment: run again, it drops
a line that was not finished, goes on behind it, and ends with the same files as a job that was never stopped. Filtering
is a pass of its own over both files; it is cheap and may be repeated with other limits. Who translates is not known
here (`translate`), and torch is not needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from model.errors import DataError
from model.pair_filters import FilterLimits, LanguageJudge, find_fault
from model.parallel_text import read_lines

JOB_FILE = "job.json"
ANSWERS_FILE = "translations.jsonl"
PAIRS_FILE = "pairs.tsv"
REPORT_FILE = "report.json"

FILTERS = (
    *("failed", "truncated", "empty", "copy", "repetition", "length_ratio", "language"),
    "duplicate",
)
"""In the order in which they look at a pair."""

_MIN_PAIRS_TO_JUDGE = 1000
"""With fewer pairs nobody can tell what the languages look like: the language filter is off."""

_MAX_PAIRS_TO_LEARN = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the teacher made of one line."""

    text: str
    truncated: bool = False
    """A limit ended it, not the model."""

    error: str = ""
    """Why there is no translation."""


Translate = Callable[[Iterator[str]], Iterator[Answer]]
"""Takes the lines one by one, as fast as it likes, and gives an answer to each, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a job."""

    lines: int
    """Lines of the source file."""

    kept: int
    """Pairs in `pairs.tsv`."""

    removed: dict[str, int]
    """Pairs that each filter removed, by its name; every filter is there."""


def open_job(source: Path, output: Path, teacher: Mapping[str, Any]) -> int:
    """Begin a job, or find the one that stands in the folder already.

    Args:
        source: The text, a sentence or paragraph a line (.xz and .gz are unpacked).
        output: The folder of the job, made if missing.
        teacher: Plain values that say who translates and how.

    Returns:
        Lines of the source.

    Raises:
        DataError: The source cannot be read, or the folder belongs to another job.
    """
    digest, num_lines = hashlib.sha256(), 0
    for line in read_lines(source):
        digest.update(line.encode("utf-8") + b"\n")
        num_lines += 1
    job = {"source_sha256": digest.hexdigest(), "lines": num_lines, "teacher": dict(teacher)}
    path = output / JOB_FILE
    if not path.exists():
        output.mkdir(parents=True, exist_ok=True)
        if (output / ANSWERS_FILE).exists():
            raise DataError(f"{output}: holds {ANSWERS_FILE} but no {JOB_FILE}.")
        _replace(path, json.dumps(job, indent=2, ensure_ascii=False) + "\n")
        return num_lines
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found = {name: found[name] for name in job}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: is broken; the answers beside it cannot be told apart."
        ) from error
    if found["source_sha256"] != job["source_sha256"]:
        raise DataError(f"{output}: was begun with another text than {source}.")
    if found["teacher"] != dict(teacher):
        difference = _describe_difference(found["teacher"], teacher)
        raise DataError(f"{output}: was begun with another teacher or other options: {difference}.")
    return num_lines


def translate_rest(
    source: Path,
    output: Path,
    translate: Translate,
    on_progress: Callable[[int], None] = lambda count: None,
) -> None:
    """Translate the lines that have no answer yet.

    Args:
        source: The text.
        output: The folder of the job.
        translate: The teacher.
        on_progress: Told how many more lines are done: first those of an earlier run, then one by one.

    Raises:
        DataError: Another process works on the same job, or the teacher left lines out.
    """
    with _open_answers(output / ANSWERS_FILE) as stream:
        num_done = _drop_torn_line(stream)
        on_progress(num_done)
        rest = islice(read_lines(source), num_done, None)
        num_left = 0

        def count_lines() -> Iterator[str]:
            nonlocal num_left
            for line in rest:
                num_left += 1
                yield line

        num_answers = 0
        for answer in translate(count_lines()):
            stream.write(json.dumps(asdict(answer), ensure_ascii=False).encode("utf-8") + b"\n")
            stream.flush()  # what was translated is not lost with the process
            num_answers += 1
            on_progress(1)
        os.fsync(stream.fileno())
    if num_answers != num_left:
        raise DataError(f"{num_left} lines were translated, but {num_answers} answers came back.")


def filter_pairs(source: Path, output: Path, limits: FilterLimits) -> Report:
    """Write the pairs that no filter removes, and how many each removed."""
    judge = _learn_languages(source, output) if limits.language_margin else None
    counts = dict.fromkeys(FILTERS, 0)
    seen: set[bytes] = set()
    num_lines = num_kept = 0
    partial = output / f".{PAIRS_FILE}.partial"
    with partial.open("w", encoding="utf-8", newline="\n") as stream:
        for line, answer in _read_pairs(source, output):
            num_lines += 1
            fault = _find_fault(line, answer, limits, judge)
            pair = f"{_one_field(line)}\t{_one_field(answer.text)}\n"
            if fault is None and not limits.keep_duplicates:
                key = hashlib.blake2b(pair.encode("utf-8"), digest_size=12).digest()
                fault = "duplicate" if key in seen else None
                seen.add(key)
            if fault is not None:
                counts[fault] += 1
                continue
            stream.write(pair)
            num_kept += 1
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(output / PAIRS_FILE)
    report = Report(lines=num_lines, kept=num_kept, removed=counts)
    content = {**asdict(report), "limits": asdict(limits), "language_filter": judge is not None}
    _replace(output / REPORT_FILE, json.dumps(content, indent=2) + "\n")
    return report


def _find_fault(
    line: str, answer: Answer, limits: FilterLimits, judge: LanguageJudge | None
) -> str | None:
    if answer.error:
        return "failed"
    if answer.truncated:
        return "truncated"
    fault = find_fault(line, answer.text, limits)
    if fault is None and judge is not None:
        in_place = judge.is_in_place(line, answer.text, limits.language_margin)
        return None if in_place else "language"
    return fault


def _learn_languages(source: Path, output: Path) -> LanguageJudge | None:
    """Learn what both sides look like from pairs all over the text; None when there are too few of them."""
    with (output / ANSWERS_FILE).open("rb") as stream:
        num_lines = sum(1 for _ in stream)
    if num_lines < _MIN_PAIRS_TO_JUDGE:
        return None
    stride = -(-num_lines // _MAX_PAIRS_TO_LEARN)
    sample = islice(_read_pairs(source, output), 0, None, stride)
    return LanguageJudge((line, answer.text) for line, answer in sample)


def _read_pairs(source: Path, output: Path) -> Iterator[tuple[str, Answer]]:
    with (output / ANSWERS_FILE).open("rb") as stream:
        answers = (Answer(**json.loads(line)) for line in stream)
        yield from zip(read_lines(source), answers, strict=True)


@contextmanager
def _open_answers(path: Path) -> Iterator[BinaryIO]:
    """Open the answers for this process alone."""
    with path.open("ab+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{path}: another process is at work on it.") from error
        yield stream


def _drop_torn_line(stream: BinaryIO) -> int:
    """Cut off what is not a whole answer, and count those that are."""
    stream.seek(0)
    num_whole = end = 0
    for line in stream:
        if not line.endswith(b"\n") or not _is_answer(line):
            break
        num_whole, end = num_whole + 1, end + len(line)
    stream.truncate(end)
    stream.seek(0, os.SEEK_END)
    return num_whole


def _is_answer(line: bytes) -> bool:
    try:
        Answer(**json.loads(line))
    except (ValueError, TypeError):
        return False
    return True


def _describe_difference(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Name what differs and nothing else. An option that is None was not given."""
    names = [name for name in {**begun, **asked} if begun.get(name) != asked.get(name)]

    def told(value: Any) -> str:
        return "not given" if value is None else str(value)

    return ", ".join(
        f"`{name}` {told(begun.get(name))}, now {told(asked.get(name))}" for name in names
    )


def _one_field(text: str) -> str:
    """Put spaces where a TSV file cannot have anything else."""
    return text.strip().replace("\t", " ").replace("\r", " ").replace("\n", " ")


def _replace(path: Path, content: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)
