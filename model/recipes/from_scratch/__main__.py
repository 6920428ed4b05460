"""A small model from random weights: `python -m model.recipes.from_scratch`; see the README beside this file.

Three stages, each skipped when its result is there: split the parallel text, train, export.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from model import train
from model.parallel_text import ParallelFile
from model.recipes.bundle import BundleFacts, write_bundle
from model.recipes.from_scratch.split import write_split
from model.recipes.messages import one_message

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
    with one_message(parser.prog):
        _make(chosen.data, chosen.run)


def _make(data: Path, run: Path) -> None:
    run.mkdir(parents=True, exist_ok=True)
    held_out = run / "held-out.tsv"
    if not held_out.exists():
        source = ParallelFile(data / PARALLEL_FILE)
        write_split([source], run / "train.tsv", held_out, HELD_OUT_ONE_IN)
    train.run(_keep_config(run))
    write_bundle(run / "checkpoints" / "averaged", run / "bundle", BUNDLE)


def _keep_config(run: Path) -> Path:
    """Give the configuration of the run: the shipped one at first, and from then on the one that lies there."""
    config = run / "config.toml"  # paths in it are relative to where it lies
    if not config.exists():
        partial = config.with_name(f"{config.name}.partial")
        shutil.copyfile(CONFIG_FILE, partial)
        partial.replace(config)
    elif config.read_bytes() != CONFIG_FILE.read_bytes():
        print(f"{config} is used, which differs from {CONFIG_FILE}.", file=sys.stderr)
    return config


if __name__ == "__main__":
    main()
