"""Reading parallel text, TSV or one file a side, plain or compressed; broken text is refused with file and line."""

from __future__ import annotations

import codecs
import gzip
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from model.errors import DataError


@dataclass(frozen=True, slots=True)
class ParallelFile:
    """Where sentence pairs lie: one file with a tab between the sides, or one file for each side."""

    source: Path
    """The sources, or source TAB target when `target` is None."""

    target: Path | None = None
    """The translations, line by line."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The one or two files."""
        return (self.source,) if self.target is None else (self.source, self.target)


def read_pairs(files: Iterable[ParallelFile]) -> Iterator[tuple[str, str]]:
    """Read the sentence pairs of several files, one file after the other.

    Raises:
        DataError: A file is missing, truncated or not UTF-8, a line has no tab or an empty side, or one side is longer
            than the other; the message names the file and the line.
    """
    for file in files:
        if file.target is None:
            yield from _read_tsv(file.source)
        else:
            yield from _read_two(file.source, file.target)


def read_lines(path: Path) -> Iterator[str]:
    r"""Read the lines of a text file (.xz and .gz are unpacked); only "\n" and "\r\n" end a line.

    A byte order mark at the beginning is no text.

    Raises:
        DataError: The file is missing, truncated or not UTF-8.
    """
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):  # noqa: B007 - the handlers below name it
                text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                yield text.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: is not UTF-8: byte {error.start + 1} of the line is "
            f"0x{error.object[error.start]:02x}."
        ) from error
    except (OSError, EOFError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = f"{path}:{number + 1}" if number else str(path)
        raise DataError(f"{where}: cannot be read: {reason}.") from error


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path))
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    return path.open("rb")


def _read_tsv(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        sides = line.split("\t")
        if len(sides) != 2:  # noqa: PLR2004 - source and target
            raise DataError(
                f"{path}:{number}: must be source TAB target, but has {len(sides) - 1} tabs."
            )
        yield _check_sides(sides[0], sides[1], f"{path}:{number}", f"{path}:{number}")


def _read_two(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (source_line, target_line) in enumerate(lines, start=1):
        if source_line is None or target_line is None:
            short, long = (source, target) if source_line is None else (target, source)
            raise DataError(
                f"{long}:{number}: has no counterpart: {short} ends after line {number - 1}."
            )
        yield _check_sides(source_line, target_line, f"{source}:{number}", f"{target}:{number}")


def _check_sides(source: str, target: str, source_at: str, target_at: str) -> tuple[str, str]:
    if not source.strip():
        raise DataError(f"{source_at}: the source is empty.")
    if not target.strip():
        raise DataError(f"{target_at}: the target is empty.")
    return source, target
