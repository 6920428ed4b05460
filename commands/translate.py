"""Translate a text, files or standard input, line by line and in order.

Without --address the embedded models (or those named by --bundle) run in this process; with it a running server
answers. Translations go to standard output; a line that cannot be translated leaves an empty line there and a message
on standard error, and the exit code becomes 1.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from commands import alignment_plot
from commands.backend import Answer, Backend, Options, choose_pair
from commands.errors import EXIT_USAGE, CommandError
from commands.lines import STANDARD_INPUT, Line, check_text, count_lines, read_lines
from commands.pipeline import translate_in_order
from commands.progress import Progress

__all__ = ["add_arguments", "add_backend_arguments", "complete", "open_backend", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "text", nargs="?", metavar="TEXT", help="the text; without it, files or standard input"
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PATH",
        help='a file to translate line by line; "-" is standard input (repeatable)',
    )
    add_backend_arguments(parser)
    parser.add_argument(
        "--source", default="", metavar="CODE", help="source language (default: the model's)"
    )
    parser.add_argument(
        "--target", default="", metavar="CODE", help="target language (default: the model's)"
    )
    parser.add_argument(
        "--alternatives",
        type=int,
        default=0,
        metavar="N",
        help="also print N other translations, each on a line of its own after a tab (default: 0)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a line, with scores"
    )
    alignment_plot.add_arguments(parser)


def add_backend_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say who translates and how."""
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="a running server (default: translate in this process)",
    )
    parser.add_argument(
        "--bundle",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="a bundle to load in this process (repeatable; default: the embedded ones)",
    )
    parser.add_argument("--model", default="", metavar="NAME", help="one of several loaded models")
    parser.add_argument(
        "--beam-size", type=int, metavar="K", help="1 to 16 (default: the model's own)"
    )
    parser.add_argument(
        "--length-penalty", type=float, metavar="ALPHA", help="0 to 10 (default: the model's own)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Translate; 1 when a line failed."""
    if arguments.text is not None and arguments.file:
        raise CommandError("give either TEXT or --file, not both.", exit_code=EXIT_USAGE)
    if arguments.alignment_plot or arguments.checkpoint or arguments.translation is not None:
        return alignment_plot.run(arguments)
    return asyncio.run(_translate(arguments))


def open_backend(arguments: argparse.Namespace) -> AbstractAsyncContextManager[Backend]:
    """Connect to the server, or load the bundles into this process."""
    if arguments.address is not None:
        if arguments.bundle:
            raise CommandError("give either --address or --bundle.", exit_code=EXIT_USAGE)
        from commands.client import Client

        return Client(arguments.address)
    from commands.local import LocalBackend

    return LocalBackend(arguments.bundle)


async def complete(backend: Backend, options: Options) -> Options:
    """Fill in the languages that the user left out."""
    if options.source_language and options.target_language:
        return options
    return choose_pair(await backend.list_pairs(), options)


async def _translate(arguments: argparse.Namespace) -> int:
    lines, total = _source(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # as the input, whatever the locale
    options = Options(
        source_language=arguments.source,
        target_language=arguments.target,
        model=arguments.model,
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
        num_alternatives=arguments.alternatives,
        return_scores=arguments.json,
    )
    num_failed = 0
    async with open_backend(arguments) as backend:
        options = await complete(backend, options)
        with Progress(total) as progress:
            async for batch in translate_in_order(backend, lines, options):
                for line, answer in batch:
                    _print(line, answer, as_json=arguments.json)
                    num_failed += bool(answer.error)
                sys.stdout.flush()
                progress.advance(len(batch))
    return 1 if num_failed else 0


def _source(arguments: argparse.Namespace) -> tuple[Iterator[Line], int | None]:
    if arguments.text is not None:
        return iter([Line(check_text(arguments.text, "TEXT"), "\n", "TEXT")]), 1
    paths = arguments.file or [STANDARD_INPUT]
    for path in paths:
        if path != STANDARD_INPUT and not Path(path).exists():
            raise CommandError(f"there is no file {path}.", exit_code=EXIT_USAGE)
    return read_lines(paths), count_lines(paths)


def _print(line: Line, answer: Answer, *, as_json: bool) -> None:
    if answer.error:
        print(f"dragoman translate: {line.place}: {answer.error}", file=sys.stderr)
    if as_json:
        sys.stdout.write(json.dumps(_to_json(answer), ensure_ascii=False) + "\n")
        return
    sys.stdout.write(answer.text)
    for alternative in answer.alternatives:
        sys.stdout.write(f"\n\t{alternative}")
    sys.stdout.write(line.ending)


def _to_json(answer: Answer) -> dict[str, object]:
    fields: dict[str, object] = {"translated_text": answer.text}
    if answer.error:
        fields["error"] = answer.error
        return fields
    fields["score"] = answer.score
    fields["truncated"] = answer.truncated
    if answer.alternatives:
        fields["alternatives"] = list(answer.alternatives)
    return fields
