"""A file of texts that cannot be used is refused on the command line, in one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.corpus import load_texts, texts_file


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, r"cannot read .*texts: No such file or directory\."),
        (b"", r"texts holds no text\."),
        (b" \n\t\n", r"texts holds no text\."),
        (b"caf\xe9\n", r"texts is not valid UTF-8\."),
    ],
)
def test_what_gives_no_texts_is_refused(tmp_path: Path, content: bytes | None, fault: str) -> None:
    path = tmp_path / "texts"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(argparse.ArgumentTypeError, match=fault):
        texts_file(str(path))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"Is a directory\."):
        texts_file(str(tmp_path))


def test_lines_that_are_not_blank_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts"
    path.write_text("One.\n\n Two.\n", encoding="utf-8")
    assert load_texts(texts_file(str(path))) == ["One.", " Two."]
