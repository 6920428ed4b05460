"""Nothing that a recipe trains on is in a test set. Needs the data itself, which is not in the repository.

DRAGOMAN_DATA=FOLDER python -m pytest -m slow tests/integration/test_training_data.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.overlap import TestText
from model.parallel_text import read_lines
from model.recipes.en_pt.__main__ import CONFIG as EN_PT
from model.recipes.from_scratch.__main__ import PARALLEL_FILE
from model.recipes.pt_en.__main__ import CONFIG as PT_EN

DATA = Path(os.environ.get("DRAGOMAN_DATA", "data"))
NEVER = 1000
"""Words. What everyday sentences of Tatoeba share with a line is left out by the recipes' `--test`, not here."""


def _training_files() -> list[Path]:
    patterns = {kind.pattern for recipe in (EN_PT, PT_EN) for kind in recipe.pair_files}
    files = sorted(path for pattern in patterns for path in DATA.glob(pattern))
    return [*files, DATA / "parallel" / PARALLEL_FILE]


def _read(name: str) -> Iterator[str]:
    """Both sides of a test set."""
    for language in ("en", "pt"):
        yield from read_lines(DATA / "test" / f"{name}.{language}")


@pytest.mark.slow
@pytest.mark.skipif(
    not (DATA / "test").is_dir(),
    reason="DRAGOMAN_DATA must name the folder of the recipes' data, with test/ in it",
)
def test_no_training_file_holds_a_test_sentence() -> None:
    flores = TestText(_read("flores200_devtest"))
    tatoeba = TestText(_read("tatoeba"), min_sentence_words=NEVER, max_shared_words=NEVER)
    files = _training_files()
    assert len(files) > len(EN_PT.pair_files + PT_EN.pair_files)
    num_lines, found = 0, []
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            num_lines += 1
            for side in line.split("\t"):
                if flores.meets(side) or tatoeba.meets(side):
                    found.append(f"{path}:{number}")
    assert num_lines > 1_000_000
    assert not found, f"{len(found)} of {num_lines} lines, such as {found[:20]}"
