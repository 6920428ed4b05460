"""Train a model as a TOML file says; run the same file again to go on where training stopped.

The run's folder holds the vocabulary, `log.jsonl`, `curves.png` and `checkpoints/`.
An example and every key: docs/training.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.errors import EXIT_USAGE, CommandError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("config", type=Path, metavar="CONFIG.toml", help="what to train, on what")


def run(arguments: argparse.Namespace) -> int:
    """Train to the end."""
    from model import train
    from model.errors import ModelError, TrainConfigError

    try:
        train.run(arguments.config)
    except TrainConfigError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    except ModelError as error:
        raise CommandError(str(error)) from error
    return 0
