"""Lines of files and of standard input, as they come and exactly as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from commands.errors import EXIT_USAGE, CommandError

__all__ = ["STANDARD_INPUT", "Line", "check_text", "count_lines", "read_lines", "split_lines"]

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Line:
    """One text and what followed it: a newline, or nothing where the input ended without one."""

    text: str
    ending: str
    place: str
    """Where it came from, for messages: "line 3 of notes.txt"."""


def check_text(text: str, place: str) -> str:
    """Refuse text that is not valid Unicode: bytes that the system could not decode arrive as lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CommandError(
            f"{place} is not valid UTF-8: character {error.start + 1} is a lone surrogate or an undecodable byte.",
            exit_code=EXIT_USAGE,
        ) from error
    return text


def read_lines(paths: Iterable[str]) -> Iterator[Line]:
    """Read the files one after the other; "-" is standard input."""
    for path in paths:
        if path == STANDARD_INPUT:
            # A stream of our own: `sys.stdin` would decode, and a thread that waits in it hinders the exit.
            with open(0, "rb", closefd=False) as stream:
                yield from split_lines(stream, "standard input")
            continue
        try:
            with Path(path).open("rb") as stream:
                yield from split_lines(stream, path)
        except OSError as error:
            raise CommandError(
                f"cannot read {path}: {error.strerror or error}.", exit_code=EXIT_USAGE
            ) from error


def split_lines(stream: BinaryIO, name: str) -> Iterator[Line]:
    r"""Cut at "\n" only, so that every other character comes back where it was."""
    for number, raw in enumerate(stream, start=1):
        place = f"line {number} of {name}"
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = raw[error.start]
            raise CommandError(
                f"{place} is not valid UTF-8: byte 0x{byte:02x} at position {error.start + 1}.",
                exit_code=EXIT_USAGE,
            ) from error
        body = text.removesuffix("\n")
        yield Line(body, text[len(body) :], place)


def count_lines(paths: Iterable[str]) -> int | None:
    """Count the lines of regular files; None where that is not known beforehand."""
    total = 0
    for path in paths:
        if path == STANDARD_INPUT or not Path(path).is_file():
            return None
        with Path(path).open("rb") as stream:
            total += sum(1 for _ in stream)
    return total
