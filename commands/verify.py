"""Check a bundle: files, graphs against the signature, results that do not depend on the batch.

With --checkpoint also: values and whole translations against the torch model. Every fault is listed; exit code 1 when
there is one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="directory to check")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="the checkpoint that it was made from"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the faults, or that there is none."""
    from export.parity import verify

    faults = verify(arguments.bundle, arguments.checkpoint)
    for fault in faults:
        print(f"{arguments.bundle}: {fault}")
    if faults:
        return 1
    extent = "with its checkpoint" if arguments.checkpoint else "by itself"
    print(f"{arguments.bundle}: no fault found ({extent})")
    return 0
