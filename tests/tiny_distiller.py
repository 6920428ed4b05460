"""A distiller that takes a second: for tests in one process, and by `torchrun` in several."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

from model.processes import Processes, join_processes
from model.recipes.distiller import Distiller, DistillerConfig
from model.recipes.pairs import PairStore, TokenStore
from model.recipes.stages import StageConfig
from model.recipes.teacher import Teacher, create_student
from tests.tiny_models import make_config

STAGES = (
    StageConfig(
        name="cells", loss="cells", minutes=0.1, learning_rates=(("self_attention", 1e-2),)
    ),
    StageConfig(
        name="all",
        loss="distribution",
        minutes=0.1,
        learning_rates=(("self_attention", 1e-3), ("decoder", 1e-3), ("encoder", 1e-3)),
    ),
)


def make_pairs(count: int = 60) -> PairStore:
    """Random sentences that are their own translation."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 9, size=count)
    ids = generator.integers(3, 12, size=int(lengths.sum())).astype(np.uint16)
    store = TokenStore(ids, np.concatenate(([0], np.cumsum(lengths))))
    return PairStore(store, store)


def create_distiller(
    run: Path,
    stages: tuple[StageConfig, ...] = STAGES,
    processes: Processes | None = None,
    num_pairs: int = 60,
) -> Distiller:
    """Every look at the clock takes a second, so that a stage has the same number of updates each time."""
    torch.manual_seed(0)
    teacher = Teacher(make_config(output_bias=True, dropout=0.0)).eval().requires_grad_(False)
    config = DistillerConfig(
        stages=stages, run=run, held_out_pairs=10, checkpoint_seconds=3.0, log_steps=5, bf16=False
    )
    clock = partial(next, itertools.count())
    student = create_student(teacher)
    pairs = make_pairs(num_pairs)
    return Distiller(config, teacher, student, pairs, processes=processes, clock=clock)


ONE_UPDATE = (
    StageConfig(
        name="one",
        loss="distribution",
        minutes=0.01,
        learning_rates=(("self_attention", 1e-3), ("decoder", 1e-3)),
        max_batch_tokens=60,
    ),
)


def main(run: str) -> None:
    """Make one update, together with the processes that `torchrun` started."""
    with join_processes("cpu") as processes:
        create_distiller(Path(run), ONE_UPDATE, processes).train()


if __name__ == "__main__":
    main(sys.argv[1])
