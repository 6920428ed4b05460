"""A progress bar on standard error, for people only."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress

__all__ = ["Progress"]

_PATIENCE_SECONDS = 1.0


class Progress:
    """Shows how far a long run has come, once it has taken a while.

    Nothing is shown unless standard error is a terminal, nor where standard output is the same terminal: there the
    translations themselves tell, unless they go to a file (`is_result_elsewhere`).
    """

    def __init__(self, total: int | None, *, is_result_elsewhere: bool = False) -> None:
        self._total = total
        self._num_done = 0
        self._start = time.monotonic()
        self._wanted = sys.stderr.isatty() and (is_result_elsewhere or not sys.stdout.isatty())
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        """Count lines that are done."""
        self._num_done += count
        if not self._wanted:
            return
        if self._bar is None and time.monotonic() - self._start >= _PATIENCE_SECONDS:
            self._bar = self._open()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._num_done)

    def _open(self) -> rich.progress.Progress:
        import rich.console
        import rich.progress as parts

        bar = parts.Progress(
            parts.TextColumn("{task.completed} lines"),
            parts.BarColumn(),
            parts.TaskProgressColumn(show_speed=True),
            parts.TimeElapsedColumn(),
            parts.TimeRemainingColumn(),
            console=rich.console.Console(stderr=True),
            redirect_stdout=False,  # standard output is the result
        )
        self._task = bar.add_task("translate", total=self._total, completed=self._num_done)
        bar.start()
        return bar
