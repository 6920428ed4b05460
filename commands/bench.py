"""Measure this machine: Dragoman beside CTranslate2 and Hugging Face transformers, on the same weights.

Works in a checkout only, with the extras `cpu`, `train` and `bench` (`make install` makes `.venv-dev`). Prints one
table: ratios with what they should be, then absolute numbers. Let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path

from commands.errors import EXIT_USAGE, CommandError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quick", action="store_true", help="fewer runs: under ten minutes")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write everything, raw samples too"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the ratios")
    parser.add_argument(
        "--texts",
        type=Path,
        metavar="FILE",
        help="source sentences, one a line (default: built-in)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PART",
        help="measure these parts only; see benchmarks/parts.py",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="keep the models that are written for the comparison here (default: thrown away)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, write."""
    if importlib.util.find_spec("benchmarks") is None:
        raise CommandError(
            "works in a checkout only: the measurements are not part of the installed package.",
            exit_code=EXIT_USAGE,
        )
    _check(arguments)
    if arguments.work is not None:
        return _measure(arguments, arguments.work)
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as directory:
        return _measure(arguments, Path(directory))


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what would fail, before minutes of measuring."""
    from benchmarks.parts import PARTS

    names = [part.name for part in PARTS]
    for name in arguments.only or ():
        if name not in names:
            raise _usage(f"there is no part {name!r}; there are {', '.join(names)}.")
    for path in filter(None, (arguments.json, arguments.png)):
        if path.is_dir():
            raise _usage(f"{path} cannot be written: it is a directory.")
        if not path.parent.is_dir():
            raise _usage(f"{path} cannot be written: there is no directory {path.parent}.")
    if arguments.png is not None and arguments.png.suffix != ".png":
        raise _usage(f"{arguments.png} must end in .png.")
    if arguments.work is not None and arguments.work.exists() and not arguments.work.is_dir():
        raise _usage(f"{arguments.work} is no directory.")
    if arguments.texts is not None:
        _check_texts(arguments.texts)


def _check_texts(path: Path) -> None:
    from benchmarks.corpus import find_texts_fault

    fault = find_texts_fault(path)
    if fault is not None:
        raise _usage(fault)


def _usage(message: str) -> CommandError:
    return CommandError(message, exit_code=EXIT_USAGE)


def _measure(arguments: argparse.Namespace, directory: Path) -> int:
    import rich.console

    from benchmarks.parts import PARTS
    from benchmarks.picture import save_picture
    from benchmarks.run import run_parts
    from benchmarks.stand import Stand
    from benchmarks.table import print_report

    directory.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in PARTS if not arguments.only or part.name in arguments.only]
    console = rich.console.Console()
    progress = rich.console.Console(stderr=True)
    stand = Stand(directory, quick=arguments.quick, texts_file=arguments.texts)
    report = run_parts(stand, chosen, lambda name: progress.print(f"measuring: {name}"))
    print_report(report, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    if arguments.png is not None:
        save_picture(report, arguments.png)
    return 0
