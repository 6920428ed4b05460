"""English to Portuguese: `python -m model.recipes.en_pt --teacher FOLDER`; see the README beside this file."""

from __future__ import annotations

from pathlib import Path

from model.recipes.bundle import BundleFacts
from model.recipes.pairs import PairFiles
from model.recipes.recipe import RecipeConfig, run_command

CONFIG = RecipeConfig(
    teacher=Path("teacher/enpt-1693087644"),
    pair_files=(PairFiles("distill.en-pt.*.tsv.xz"),),
    run=Path("runs/en_pt"),
    bundle=BundleFacts(
        name="en-pt",
        version="1.0.0",
        source_language="en",
        target_language="pt",
        license="MPL-2.0",
        max_source_tokens=64,  # the pairs are sentences; of longer stretches it drops parts
    ),
)

if __name__ == "__main__":
    run_command(CONFIG)
