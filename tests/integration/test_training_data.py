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
NO_PART_OF_A_LINE = 1000
"""A line that holds an everyday sentence of Tatoeba beside others is left out by the recipes' `--test`, not here."""

TEST_SETS = ("flores200_devtest.en", "flores200_devtest.pt", "tatoeba.en", "tatoeba.pt")


def _training_files() -> list[Path]:
    patterns = {kind.pattern for recipe in (EN_PT, PT_EN) for kind in recipe.pair_files}
    files = sorted(path for pattern in patterns for path in DATA.glob(pattern))
    return [*files, DATA / "parallel" / PARALLEL_FILE]


def _test_lines() -> Iterator[str]:
    for name in TEST_SETS:
        yield from read_lines(DATA / "test" / name)


@pytest.mark.slow
@pytest.mark.skipif(
    not (DATA / "test").is_dir(),
    reason="DRAGOMAN_DATA must name the folder of the recipes' data, with test/ in it",
)
def test_no_training_file_holds_a_test_sentence() -> None:
    text = TestText(_test_lines(), min_sentence_words=NO_PART_OF_A_LINE)
    files = _training_files()
    assert len(files) > len(EN_PT.pair_files + PT_EN.pair_files)
    num_lines, found = 0, []
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            num_lines += 1
            found += [f"{path}:{number}" for side in line.split("\t") if text.meets(side)]
    assert num_lines > 1_000_000
    assert not found, f"{len(found)} of {num_lines} lines, such as {found[:20]}"
