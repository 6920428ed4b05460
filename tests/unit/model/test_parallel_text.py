from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from model.errors import DataError
from model.parallel_text import ParallelFile, read_lines, read_pairs


def _write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_tsv_gives_its_pairs_in_order(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.tsv", "one\tum\ntwo\tdois\n")
    assert list(read_pairs([ParallelFile(path)])) == [("one", "um"), ("two", "dois")]


def test_two_files_give_pairs_line_by_line(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.en", "one\r\ntwo")
    target = _write(tmp_path / "a.pt", "um\ndois\n")
    assert list(read_pairs([ParallelFile(source, target)])) == [("one", "um"), ("two", "dois")]


def test_several_files_follow_one_another(tmp_path: Path) -> None:
    first = ParallelFile(_write(tmp_path / "a.tsv", "one\tum\n"))
    second = ParallelFile(_write(tmp_path / "b.tsv", "two\tdois\n"))
    assert list(read_pairs([second, first])) == [("two", "dois"), ("one", "um")]


@pytest.mark.parametrize(("suffix", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files_are_unpacked(tmp_path: Path, suffix: str, pack) -> None:  # type: ignore[no-untyped-def]
    path = _write(tmp_path / f"a.tsv{suffix}", pack(b"one\tum\n"))
    assert list(read_pairs([ParallelFile(path)])) == [("one", "um")]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfone\ntwo\n", b"\xef\xbb\xbfone\r\ntwo"])
def test_byte_order_mark_at_the_beginning_is_no_text(tmp_path: Path, content: bytes) -> None:
    assert list(read_lines(_write(tmp_path / "a.txt", content))) == ["one", "two"]


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.txt", "one\u2028still one\x0b\x85\ntwo")
    assert list(read_lines(path)) == ["one\u2028still one\x0b\x85", "two"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one\tum\ntwo dois\n", r"a\.tsv:2: must be source TAB target, but has 0 tabs"),
        ("one\tum\t1\n", r"a\.tsv:1: must be source TAB target, but has 2 tabs"),
        ("one\tum\n\tdois\n", r"a\.tsv:2: the source is empty"),
        ("one\tum\ntwo\t \n", r"a\.tsv:2: the target is empty"),
        ("one\tum\n\n", r"a\.tsv:2: must be source TAB target"),
        (b"one\tum\ntwo\td\xffis\n", r"a\.tsv:2: is not UTF-8: byte 6 of the line is 0xff"),
    ],
)
def test_broken_tsv_is_refused_with_file_and_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = _write(tmp_path / "a.tsv", content)
    with pytest.raises(DataError, match=message):
        list(read_pairs([ParallelFile(path)]))


def test_longer_side_is_refused_with_its_first_lonely_line(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.en", "one\ntwo\nthree\n")
    target = _write(tmp_path / "a.pt", "um\ndois\n")
    with pytest.raises(DataError, match=r"a\.en:3: has no counterpart: .*a\.pt ends after line 2"):
        list(read_pairs([ParallelFile(source, target)]))
    with pytest.raises(DataError, match=r"a\.en:3: has no counterpart"):
        list(read_pairs([ParallelFile(target, source)]))


def test_empty_line_of_one_file_is_named_in_that_file(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.en", "one\ntwo\n")
    target = _write(tmp_path / "a.pt", "um\n\n")
    with pytest.raises(DataError, match=r"a\.pt:2: the target is empty"):
        list(read_pairs([ParallelFile(source, target)]))


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.tsv: cannot be read: No such file"):
        list(read_pairs([ParallelFile(tmp_path / "gone.tsv")]))


def test_truncated_archive_is_refused_by_name(tmp_path: Path) -> None:
    packed = lzma.compress(b"one\tum\n" * 5000)
    path = _write(tmp_path / "a.tsv.xz", packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"a\.tsv\.xz.*cannot be read: Compressed file ended"):
        list(read_pairs([ParallelFile(path)]))


def test_file_that_only_claims_to_be_an_archive_is_refused(tmp_path: Path) -> None:
    for name in ("a.tsv.xz", "a.tsv.gz"):
        path = _write(tmp_path / name, "one\tum\n")
        with pytest.raises(DataError, match=rf"{name}: cannot be read"):
            list(read_pairs([ParallelFile(path)]))
