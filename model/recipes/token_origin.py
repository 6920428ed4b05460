"""What the token arrays of a run were made from: those of other text or test sets are never taken up silently."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.checkpoint import read_json
from model.errors import DataError

ORIGIN_FILE = "origin.json"


def describe_origin(
    files: Sequence[tuple[Path, bool]], vocabulary: Path, limits: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe everything that decides which tokens come out, files by their SHA-256.

    Args:
        files: Pairs, and whether their columns are reversed.
        vocabulary: SentencePiece model.
        limits: Which pairs are taken, in plain values.
    """
    return {
        "data": [[path.name, reverse, _digest(path)] for path, reverse in files],
        "vocabulary": _digest(vocabulary),
        **limits,
    }


def write_origin(folder: Path, origin: Mapping[str, Any]) -> None:
    """Leave a description beside the arrays."""
    text = json.dumps(origin, indent=2) + "\n"
    (folder / ORIGIN_FILE).write_text(text, encoding="utf-8")


def require_origin(folder: Path, origin: Mapping[str, Any]) -> None:
    """Refuse arrays that were made from something else.

    Raises:
        DataError: They were; the message says what differs.
    """
    made_from = read_json(folder / ORIGIN_FILE)
    others = [key for key in (*origin, *made_from) if origin.get(key) != made_from.get(key)]
    if others:
        raise DataError(
            f"{folder}: the run began with other {', '.join(dict.fromkeys(others))}; give the same again, "
            "or name another folder by --run."
        )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
