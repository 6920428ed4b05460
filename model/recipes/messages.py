"""How the commands of recipes end: with one message where a file, an option or the machine is at fault."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

from model.errors import ModelError


@contextmanager
def one_message(program: str) -> Iterator[None]:
    """Turn errors that a user can mend into one line on stderr and exit code 1; `DRAGOMAN_TRACEBACK=1` shows where."""
    try:
        yield
    except (ModelError, OSError) as error:
        if os.environ.get("DRAGOMAN_TRACEBACK"):
            raise
        raise SystemExit(f"{program}: {_describe(error)}") from error


def count(text: str) -> int:
    """Read an option that is a whole number of at least 0."""
    value = int(text) if text.isascii() and text.isdecimal() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, but is {text!r}")
    return value


def positive_number(text: str) -> float:
    """Read an option that is a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        raise argparse.ArgumentTypeError(f"must be a number above 0, but is {text!r}")
    return value


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
