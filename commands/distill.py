"""Translate a text file with a model and keep what is fit to train another model on.

OUTPUT is a folder: `pairs.tsv` is training data, `report.json` counts what each filter removed, `translations.jsonl`
has every answer. The command may be killed at any moment: run again, it goes on where it stopped. Once everything is
translated, running it with other filter options only filters again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from commands.backend import Answer as BackendAnswer
from commands.backend import Backend, Options, choose_model
from commands.errors import EXIT_USAGE, CommandError
from commands.lines import Line
from commands.pipeline import PipelineLimits, translate_in_order
from commands.progress import Progress
from commands.translate import add_backend_arguments, complete, open_backend

if TYPE_CHECKING:
    from model.distill import Answer, Report

__all__ = ["add_arguments", "run"]

_Item = TypeVar("_Item")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "text",
        type=Path,
        metavar="TEXT",
        help="what to translate, line by line (.xz, .gz or plain)",
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="the folder of the job")
    add_backend_arguments(parser)
    parser.add_argument("--source", default="", metavar="CODE", help="default: the model's")
    parser.add_argument("--target", default="", metavar="CODE", help="default: the model's")
    parser.add_argument(
        "--max-length-ratio",
        type=float,
        default=3.0,
        metavar="R",
        help="longer side / shorter side in characters, ten added to both; 0: any (default: 3)",
    )
    parser.add_argument(
        "--max-repeats",
        type=int,
        default=3,
        metavar="N",
        help="how often a phrase may stand in a row; 0: any number (default: 3)",
    )
    parser.add_argument(
        "--language-margin",
        type=float,
        default=0.3,
        metavar="X",
        help="how much a side may look like the other language; 0: no matter (default: 0.3)",
    )
    parser.add_argument(
        "--keep-copies", action="store_true", help="keep translations that are their source"
    )
    parser.add_argument(
        "--keep-duplicates", action="store_true", help="keep pairs that came before"
    )


def run(arguments: argparse.Namespace) -> int:
    """Translate what is left, then filter."""
    from model import distill
    from model.errors import DataError
    from model.pair_filters import FilterLimits

    try:
        limits = FilterLimits(
            max_length_ratio=arguments.max_length_ratio,
            max_repeats=arguments.max_repeats,
            language_margin=arguments.language_margin,
            keep_copies=arguments.keep_copies,
            keep_duplicates=arguments.keep_duplicates,
        )
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    if not arguments.text.is_file():
        raise CommandError(f"there is no file {arguments.text}.", exit_code=EXIT_USAGE)
    try:
        _translate(arguments)
        report = distill.filter_pairs(arguments.text, arguments.output, limits)
    except DataError as error:
        raise CommandError(str(error)) from error
    _print(report, arguments.output / distill.PAIRS_FILE)
    return 0


def _translate(arguments: argparse.Namespace) -> None:
    from model import distill

    options = Options(
        source_language=arguments.source,
        target_language=arguments.target,
        model=arguments.model,
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
    )
    # The teacher's event loop runs while the next answers are awaited; its engine has threads of its own.
    with asyncio.Runner() as runner, closing(_Teacher(runner, arguments, options)) as teacher:
        total = distill.open_job(arguments.text, arguments.output, teacher.describe())
        with Progress(total, is_result_elsewhere=True) as progress:
            distill.translate_rest(
                arguments.text, arguments.output, teacher.translate, progress.advance
            )


class _Teacher:
    """Lets a backend, which is asynchronous, answer line by line."""

    def __init__(
        self, runner: asyncio.Runner, arguments: argparse.Namespace, options: Options
    ) -> None:
        self._runner = runner
        self._context = open_backend(arguments)
        self._answers: AsyncGenerator[list[tuple[Line, BackendAnswer]]] | None = None
        self._backend: Backend = runner.run(self._context.__aenter__())
        try:
            self._options = runner.run(complete(self._backend, options))
        except BaseException:
            self.close()
            raise

    def describe(self) -> dict[str, Any]:
        """Say what decides the translations, as plain values."""
        pair = choose_model(self._runner.run(self._backend.list_pairs()), self._options)
        return {
            "model": pair.model,
            "version": pair.version,
            "precision": pair.precision,
            "source_language": self._options.source_language,
            "target_language": self._options.target_language,
            "beam_size": self._options.beam_size,
            "length_penalty": self._options.length_penalty,
        }

    def translate(self, texts: Iterator[str]) -> Iterator[Answer]:
        """Translate many texts at once and give the answers in order."""
        from model.distill import Answer

        lines = (Line(text, "\n", f"line {number}") for number, text in enumerate(texts, start=1))
        self._answers = translate_in_order(self._backend, lines, self._options, _limits())
        while batch := self._runner.run(_next(self._answers)):
            for _, answer in batch:
                yield Answer(text=answer.text, truncated=answer.truncated, error=answer.error)

    def close(self) -> None:
        """Stop what is under way, then the engine, or leave the server."""
        if self._answers is not None:
            self._runner.run(_end(self._answers))
        self._runner.run(self._context.__aexit__(None, None, None))


async def _next(answers: AsyncGenerator[_Item]) -> _Item | None:
    return await anext(answers, None)


async def _end(answers: AsyncGenerator[_Item]) -> None:
    await answers.aclose()


def _limits() -> PipelineLimits:
    """Keep every core's batch full, whatever the length of the lines: nobody waits for a single answer here."""
    return PipelineLimits(max_calls=8 * (os.cpu_count() or 1) + 8)


def _print(report: Report, pairs: Path) -> None:
    removed = {name: count for name, count in report.removed.items() if count}
    width = max(map(len, ["lines", "kept", *removed]))
    rows = {"lines": report.lines, **removed, "kept": report.kept}
    for name, count in rows.items():
        share = f"{100 * count / report.lines:6.2f} %" if report.lines else ""
        print(f"{name:<{width}}  {count:>12,}  {share}".rstrip())
    print(pairs)
