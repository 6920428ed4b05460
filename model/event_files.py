"""TensorBoard event files, for those who watch their runs there; needs the package `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import TrainingError

_EVENTS = {"step": "training", "validation": "held_out"}
_NOT_DRAWN = ("step", "best")


class EventFiles:
    """Writes the numbers of `step` and `validation` events where TensorBoard finds them."""

    def __init__(self, directory: Path, *, first_step: int = 0) -> None:
        """Open a new event file in a folder.

        Args:
            directory: Made if missing; a resumed run adds a file.
            first_step: What was written for later updates before is hidden: a resumed run does them once more.

        Raises:
            TrainingError: The package is not installed.
        """
        try:
            from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415 - optional
        except ModuleNotFoundError as error:
            raise TrainingError(
                "`tensorboard = true` needs the package: pip install '.[tensorboard]' in the checkout."
            ) from error
        self._writer = SummaryWriter(str(directory), purge_step=first_step or None)

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write the numbers of one event; others than `step` and `validation` are left out."""
        group = _EVENTS.get(event)
        if group is None:
            return
        numbers = {**fields, **fields.get("scores", {})}
        for name, value in numbers.items():
            if isinstance(value, int | float) and name not in _NOT_DRAWN:
                self._writer.add_scalar(f"{group}/{name}", value, fields["step"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
