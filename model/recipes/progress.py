"""Where a run stands, on disk: a killed run goes on from its last checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from torch.optim import Optimizer

from model.checkpoint import (
    TRAINER_FILE,
    WEIGHTS_FILE,
    finish_replacing,
    load_trainer_state,
    load_weights,
    read_json,
    read_tensors,
    replace_directory,
    write_model,
    write_trainer_state,
)
from model.errors import CheckpointError
from model.transformer import Transformer

_LAST = "last"


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    stage: int = 0
    """Index of the stage that runs."""

    step: int = 0
    """Updates in this stage."""

    seconds: float = 0.0
    """Time spent in this stage."""

    epoch: int = 0
    """Passes over the data, all stages together; seeds the order."""

    batch: int = 0
    """Batches used of this pass."""


def save_progress(
    run: Path, student: Transformer, optimizer: Optimizer, progress: Progress
) -> None:
    """Replace the last checkpoint by the present state."""
    with replace_directory(run / _LAST) as partial:
        write_model(partial, student)
        write_trainer_state(partial, student, optimizer, asdict(progress))


def load_progress(run: Path, student: Transformer) -> Progress | None:
    """Fill `student` from the last checkpoint and say where it stands; None when there is none."""
    folder = run / _LAST
    finish_replacing(folder)
    if not folder.exists():
        return None
    load_weights(student, read_tensors(folder / WEIGHTS_FILE), folder / WEIGHTS_FILE)
    try:
        return Progress(**read_json(folder / TRAINER_FILE))
    except TypeError as error:
        raise CheckpointError(f"{folder / TRAINER_FILE}: is not of a recipe's run.") from error


def load_optimizer(run: Path, student: Transformer, optimizer: Optimizer) -> None:
    """Give a fresh optimizer the moments of the last checkpoint."""
    load_trainer_state(run / _LAST, student, optimizer)
