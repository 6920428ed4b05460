"""Which checkpoints of a run exist: `step-*` directories and the links `last` and `best`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from model.checkpoint import (
    average_checkpoints,
    replace_directory,
    save_model,
    write_model,
    write_trainer_state,
)
from model.tokenizer import Tokenizer
from model.transformer import Transformer

_PREFIX = "step-"


class CheckpointStore:
    """A folder of checkpoints, of which the newest and the best are kept.

    Links are replaced in one step and only after what they name is complete, so a run that is killed at any moment
    leaves `last` and `best` whole.
    """

    def __init__(self, directory: Path, *, keep: int) -> None:
        """Open the folder; nothing is written yet."""
        self.directory = directory
        self._keep = keep

    @property
    def last(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        steps = self.steps()
        return steps[-1] if steps else None

    @property
    def best(self) -> Path | None:
        """The checkpoint with the lowest held-out loss, if one was marked."""
        link = self.directory / "best"
        return self.directory / link.readlink() if link.is_symlink() else None

    def steps(self) -> list[Path]:
        """Give all checkpoints, oldest first."""
        return sorted(self.directory.glob(f"{_PREFIX}*"))

    def save(
        self,
        step: int,
        model: Transformer,
        tokenizer: Tokenizer,
        optimizer: Optimizer,
        progress: Mapping[str, Any],
        *,
        is_best: bool,
    ) -> Path:
        """Write a checkpoint that training can go on from, and drop those that are no longer kept."""
        directory = self.directory / f"{_PREFIX}{step:08d}"
        with replace_directory(directory) as partial:
            write_model(partial, model, tokenizer)
            write_trainer_state(partial, model, optimizer, progress)
        self._link("last", directory)
        if is_best:
            self._link("best", directory)
        for old in self.steps()[: -self._keep]:
            if old != self.best:
                shutil.rmtree(old)
        return directory

    def save_average(self, count: int, tokenizer: Tokenizer) -> Path:
        """Write the mean of the newest `count` checkpoints as `averaged`."""
        directory = self.directory / "averaged"
        save_model(directory, average_checkpoints(self.steps()[-count:]), tokenizer)
        return directory

    def _link(self, name: str, directory: Path) -> None:
        fresh = self.directory / f".{name}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(directory.name)
        fresh.replace(self.directory / name)
