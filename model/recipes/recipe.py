"""From distillation data and a teacher to a bundle: what the recipes of all language pairs share."""

from __future__ import annotations

import argparse
import copy
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import torch

from model.checkpoint import average_checkpoints, save_model
from model.errors import CheckpointError
from model.overlap import TestText
from model.parallel_text import read_lines
from model.processes import Processes, join_processes
from model.recipes.bundle import BundleFacts, write_bundle
from model.recipes.distiller import Distiller, DistillerConfig
from model.recipes.messages import count, one_message, positive_number
from model.recipes.pairs import PairFiles, PairLimits, find_pair_files, load_pairs
from model.recipes.stages import StageConfig
from model.recipes.teacher import create_student, find_one, load_teacher
from model.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

STAGES = (
    StageConfig(
        name="cells",
        loss="cells",
        minutes=9.0,
        learning_rates=(("self_attention", 2e-3),),
    ),
    StageConfig(
        name="decoder",
        loss="distribution",
        minutes=92.0,
        learning_rates=(("self_attention", 5e-4), ("decoder", 1.5e-4)),
    ),
)
"""Imitate the recurrent cells, then match the teacher's distribution of the next word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeConfig:
    """Where a recipe finds its inputs and leaves its outputs."""

    teacher: Path
    """Folder of the Firefox model: `model.*.bin` and `vocab.*.spm`."""

    data: Path = Path("data")
    """Folder of the distillation data."""

    pair_files: tuple[PairFiles, ...]
    """Its files."""

    run: Path
    """Folder of token arrays, checkpoints, log and, in the end, `checkpoint/` and `bundle/`."""

    bundle: BundleFacts
    """What the bundle says of itself."""

    stages: tuple[StageConfig, ...] = STAGES
    """What is trained, in order."""

    max_pairs: int = 1_600_000
    """Pairs that are taken, evenly from all files."""

    max_tokens: int = 100
    """Pairs with more tokens on a side are left out."""

    test_files: tuple[Path, ...] = ()
    """Test sets, both sides: pairs that hold a line of theirs are left out."""

    num_threads: int = 0
    """Threads of torch; 0 leaves its own choice."""

    device: str = "auto"
    """"auto" takes a GPU where there is one, each process its own; else "cpu", "cuda", ..."""


def run_recipe(config: RecipeConfig) -> None:
    """Train, or go on training, until a checkpoint is ready; then export it.

    Under `torchrun` several processes train together, and the first one writes.
    """
    with join_processes(config.device) as processes:
        checkpoint = train_student(config, processes)
        is_first = processes.is_first
    if is_first:
        write_bundle(checkpoint, config.run / "bundle", config.bundle)


def train_student(config: RecipeConfig, processes: Processes) -> Path:
    """Train, or go on training, until a checkpoint is ready.

    Returns:
        The folder of the checkpoint: `model.safetensors`, `config.json`, `tokenizer.spm`.
    """
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    files = find_pair_files(config.data, config.pair_files)
    vocabulary = find_one(config.teacher, "vocab.*.spm")
    tokenizer = Tokenizer.load(vocabulary)
    teacher = load_teacher(config.teacher)
    if tokenizer.vocab_size != teacher.config.target_vocab_size:
        raise CheckpointError(
            f"{vocabulary} has {tokenizer.vocab_size} pieces, but the model beside it "
            f"{teacher.config.target_vocab_size}: they do not belong together."
        )
    torch.manual_seed(1)
    student = create_student(teacher)
    if not processes.is_first:
        processes.wait()  # until the first one has tokenized
    pairs = load_pairs(files, vocabulary, config.run / "tokens", _limits(config))
    if processes.is_first:
        processes.wait()
    distiller_config = DistillerConfig(stages=config.stages, run=config.run)
    distiller = Distiller(distiller_config, teacher, student, pairs, processes=processes)
    distiller.train()
    _keep_better_average(distiller)
    checkpoint = config.run / "checkpoint"
    if processes.is_first:
        save_model(checkpoint, student, tokenizer)
    return checkpoint


def run_command(config: RecipeConfig, arguments: Sequence[str] | None = None) -> None:
    """Run a recipe from the command line, `config` being the defaults."""
    parser = argparse.ArgumentParser(
        prog=f"python -m model.recipes.{config.run.name}",
        description="From a teacher and text that it translated to a bundle; run again to go on after an interruption.",
    )
    for option, folder, what in (
        ("--teacher", config.teacher, "folder of the Firefox Translations model"),
        ("--data", config.data, "folder of the files of pairs"),
        ("--run", config.run, "folder of everything that is written"),
    ):
        parser.add_argument(
            option, type=Path, default=folder, metavar="DIR", help=f"{what} (default: {folder})"
        )
    parser.add_argument(
        "--test",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="texts of test sets, both languages: pairs that hold a line of them are left out",
    )
    parser.add_argument("--threads", type=count, default=config.num_threads)
    parser.add_argument("--device", default=config.device, help="auto, cpu or cuda")
    parser.add_argument(
        "--time-scale", type=positive_number, default=1.0, help="multiplies every stage"
    )
    parser.add_argument(
        "--export",
        type=Path,
        nargs=2,
        metavar=("CHECKPOINT", "BUNDLE"),
        help="train nothing: only make the bundle of a checkpoint",
    )
    parser.add_argument(
        "--precision",
        choices=("int8", "float16"),
        default="int8",
        help="of what --export makes; float16 is for GPUs (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    with one_message(parser.prog):
        _obey(config, chosen)


def _obey(config: RecipeConfig, chosen: argparse.Namespace) -> None:
    if chosen.export:
        checkpoint, bundle = chosen.export
        write_bundle(checkpoint, bundle, config.bundle, chosen.precision)
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    stages = tuple(
        replace(stage, minutes=stage.minutes * chosen.time_scale) for stage in config.stages
    )
    run_recipe(
        replace(
            config,
            teacher=chosen.teacher,
            data=chosen.data,
            run=chosen.run,
            test_files=tuple(chosen.test),
            stages=stages,
            num_threads=chosen.threads,
            device=chosen.device,
        )
    )


def _limits(config: RecipeConfig) -> PairLimits:
    lines = chain.from_iterable(map(read_lines, config.test_files))
    test_text = TestText(lines) if config.test_files else None
    return PairLimits(max_pairs=config.max_pairs, max_tokens=config.max_tokens, test_text=test_text)


def _keep_better_average(distiller: Distiller) -> None:
    """Average the last checkpoints where that is better on held-out pairs."""
    kept = sorted((distiller.config.run / "kept").glob("step-*"))
    last = distiller.evaluate()
    final = copy.deepcopy(distiller.student.state_dict())
    distiller.student.load_state_dict(average_checkpoints(kept).state_dict())
    averaged = distiller.evaluate()
    logger.info("last: %s, average of %d: %s", last, len(kept), averaged)
    if averaged["held_out_divergence"] >= last["held_out_divergence"]:
        distiller.student.load_state_dict(final)
