"""A small model from random weights: `python -m model.recipes.from_scratch`; see the README beside this file.

Three stages, each skipped when its result is there: split the parallel text, train, export.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from model import train
from model.parallel_text import ParallelFile
from model.recipes.bundle import BundleFacts, write_bundle
from model.recipes.from_scratch.split import write_split

PARALLEL_FILE = "en-pt.ptbr.tsv.xz"
"""English TAB Portuguese of Brazil."""

HELD_OUT_ONE_IN = 200
"""One source in so many is held out."""

CONFIG_FILE = Path(__file__).with_name("train.toml")

BUNDLE = BundleFacts(
    name="en-pt-from-scratch",
    version="1.0.0",
    source_language="en",
    target_language="pt-BR",
    license="LicenseRef-mixed",  # of the texts: see the README
    max_source_tokens=128,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(prog="python -m model.recipes.from_scratch")
    parser.add_argument("--data", type=Path, default=Path("data"), help=f"holds {PARALLEL_FILE}")
    parser.add_argument("--run", type=Path, default=Path("runs/from_scratch"))
    chosen = parser.parse_args(arguments)
    chosen.run.mkdir(parents=True, exist_ok=True)
    held_out = chosen.run / "held-out.tsv"
    if not held_out.exists():
        source = ParallelFile(chosen.data / PARALLEL_FILE)
        write_split([source], chosen.run / "train.tsv", held_out, HELD_OUT_ONE_IN)
    config = chosen.run / "config.toml"
    if not config.exists():
        shutil.copyfile(CONFIG_FILE, config)  # paths in it are relative to where it lies
    train.run(config)
    write_bundle(chosen.run / "checkpoints" / "averaged", chosen.run / "bundle", BUNDLE)


if __name__ == "__main__":
    main()
