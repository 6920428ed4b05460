"""Where a run stands, on disk: a killed run goes on from its last checkpoint.

`last/` is replaced by renaming a complete folder, so it is never half written. No pickle: tensors are safetensors, the
rest is JSON.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file, save_model

from model.transformer import Transformer


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


def save_weights(folder: Path, student: Transformer) -> None:
    """Write `model.safetensors` and `config.json`; tied matrices are stored once."""
    folder.mkdir(parents=True, exist_ok=True)
    save_model(student, str(folder / "model.safetensors"))
    config = json.dumps(student.config.to_dict(), indent=2)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")


def save_progress(
    run: Path, student: Transformer, optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Replace `last/` by the present state."""
    fresh, last, old = run / "last.new", run / "last", run / "last.old"
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    save_weights(fresh, student)
    save_file(_moments(optimizer), str(fresh / "optimizer.safetensors"))
    (fresh / "progress.json").write_text(json.dumps(asdict(progress)) + "\n", encoding="utf-8")
    if last.exists():
        last.rename(old)
    fresh.rename(last)
    shutil.rmtree(old, ignore_errors=True)


def load_progress(run: Path, student: Transformer) -> Progress | None:
    """Fill `student` from the last checkpoint and say where it stands; None when there is none."""
    folder = next((run / name for name in ("last", "last.old") if (run / name).exists()), None)
    if folder is None:
        return None
    load_model(student, str(folder / "model.safetensors"))
    return Progress(**json.loads((folder / "progress.json").read_text(encoding="utf-8")))


def load_optimizer(run: Path, optimizer: torch.optim.Optimizer) -> None:
    """Give a fresh optimizer the moments of the last checkpoint."""
    folder = next(run / name for name in ("last", "last.old") if (run / name).exists())
    moments = load_file(str(folder / "optimizer.safetensors"))
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in moments.items():
        index, key = name.split(".")
        state.setdefault(int(index), {})[key] = tensor
    saved = optimizer.state_dict()
    optimizer.load_state_dict({**saved, "state": state})


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": tensor
        for index, of_one in state.items()
        for key, tensor in of_one.items()
    }
