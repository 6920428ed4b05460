"""Portuguese to English: `python -m model.recipes.pt_en --teacher FOLDER`; see the README beside this file."""

from __future__ import annotations

from pathlib import Path

from model.recipes.bundle import BundleFacts
from model.recipes.pairs import PairFiles
from model.recipes.recipe import RecipeConfig, run_command

CONFIG = RecipeConfig(
    teacher=Path("teacher/pten-1693087646"),
    pair_files=(
        PairFiles("distill.pt-en.*.tsv.xz"),
        PairFiles("distill.en-pt.*.tsv.xz", reverse=True),
    ),
    run=Path("runs/pt_en"),
    bundle=BundleFacts(
        name="pt-en",
        version="1.0.0",
        source_language="pt",
        target_language="en",
        license="MPL-2.0",
        max_source_tokens=64,  # the pairs are sentences; of longer stretches it drops parts
    ),
)

if __name__ == "__main__":
    run_command(CONFIG)
