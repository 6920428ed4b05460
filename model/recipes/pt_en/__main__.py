"""Portuguese to English: `python -m model.recipes.pt_en --teacher FOLDER`; see the README beside this file."""

from __future__ import annotations

from pathlib import Path

from model.recipes.pairs import PairFiles
from model.recipes.recipe import RecipeConfig, run_command

CONFIG = RecipeConfig(
    teacher=Path("teacher/pten-1693087646"),
    pair_files=(
        PairFiles("distill.pt-en.*.tsv.xz"),
        PairFiles("distill.en-pt.*.tsv.xz", reverse=True),
    ),
    run=Path("runs/pt_en"),
)

if __name__ == "__main__":
    run_command(CONFIG)
