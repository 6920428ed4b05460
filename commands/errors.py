"""The one error of the command line."""

from __future__ import annotations

__all__ = ["EXIT_FAILURE", "EXIT_USAGE", "CommandError"]

EXIT_FAILURE = 1
EXIT_USAGE = 2


class CommandError(Exception):
    """Ends a command with one message. The exit code is 1 for a failure and 2 for wrong usage or configuration."""

    def __init__(self, message: str, *, exit_code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
