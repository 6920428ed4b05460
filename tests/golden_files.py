"""Compare a text with its golden file; `DRAGOMAN_REWRITE_GOLDEN=1 pytest` rewrites the files, the diff is reviewed."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN_DIRECTORY = Path(__file__).parent / "golden"


def assert_matches_golden(name: str, text: str) -> None:
    """Assert that `text` equals the golden file `name`, or rewrite the file when that is asked for."""
    path = GOLDEN_DIRECTORY / name
    if os.environ.get("DRAGOMAN_REWRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {name}: write it with `make golden`"
    assert text == path.read_text(encoding="utf-8"), f"{name} changed: see `make golden`"
