"""What a training run says while it runs: a JSONL file for programs, a progress bar for people."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from model.event_files import EventFiles


class TrainingLog:
    """Writes each event as one JSON line with its time, and shows the steps on standard error.

    Where standard error is no terminal the bar would be lost, so each `step` event is a line instead.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_steps: int,
        console: Console | None = None,
        event_directory: Path | None = None,
    ) -> None:
        """Open the log of a run, at its end when it exists.

        Args:
            path: The JSONL file.
            max_steps: Updates of the whole run.
            console: Where people look; standard error unless given.
            event_directory: Where TensorBoard finds the same numbers; None writes none.
        """
        end_torn_line(path)
        self._file = path.open("a", encoding="utf-8")
        self._event_directory = event_directory
        self._event_files: EventFiles | None = None
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=max_steps, state="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()
        self._file.close()
        if self._event_files is not None:
            self._event_files.close()

    def show_step(self, step: int) -> None:
        """Move the bar; writes nothing."""
        self._progress.update(self._task, completed=step)

    def start_at(self, step: int) -> None:
        """Put the bar where a run begins or goes on, so that the time left is not judged by what was done before."""
        self._progress.reset(self._task, completed=step, state="")
        if self._event_directory is not None:
            self._event_files = EventFiles(self._event_directory, first_step=step + 1)

    def write(self, event: str, **fields: Any) -> None:
        """Append one line to the file and tell people what happened.

        Args:
            event: What happened, such as "step" or "validation".
            **fields: Plain values that go with it.
        """
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields})
        self._file.write(line + "\n")
        self._file.flush()
        if self._event_files is not None:
            self._event_files.write(event, fields)
        text = "  ".join(f"{name} {_short(value)}" for name, value in fields.items())
        if event == "step" and self._console.is_terminal:
            self._progress.update(self._task, state=_bar_text(fields))
        else:
            self._console.print(f"{event}: {text}", highlight=False, markup=False, soft_wrap=True)


def end_torn_line(path: Path) -> None:
    """Put a newline behind what a killed run could not finish, so that only this line is lost."""
    if not path.is_file() or not path.stat().st_size:  # a device is no file
        return
    with path.open("rb+") as stream:
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) != b"\n":
            stream.write(b"\n")


def _bar_text(fields: dict[str, Any]) -> str:
    return f"loss {fields['loss']:.3f}  {fields['tokens_per_second']:,.0f} tokens/s"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
