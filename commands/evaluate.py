"""Measure BLEU and chrF (sacrebleu, with its signature) on a test set.

What is measured is a running server (--address), bundles in this process (--bundle, or the embedded ones), or a
checkpoint in torch (--checkpoint, the reference).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from commands.backend import Options
from commands.errors import EXIT_USAGE, CommandError
from commands.lines import Line, read_lines
from commands.pipeline import translate_in_order
from commands.progress import Progress
from commands.translate import add_backend_arguments, complete, open_backend

__all__ = ["add_arguments", "run"]

_CHECKPOINT_CHUNK = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--source", required=True, metavar="FILE", help="the texts to translate, one a line"
    )
    parser.add_argument(
        "--reference", required=True, metavar="FILE", help="their human translations, line by line"
    )
    add_backend_arguments(parser)
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="measure a checkpoint, in torch"
    )
    parser.add_argument(
        "--source-language", default="", metavar="CODE", help="default: the model's"
    )
    parser.add_argument(
        "--target-language", default="", metavar="CODE", help="default: the model's"
    )
    parser.add_argument(
        "--test-set", metavar="NAME", help="what the set is called (default: the file's name)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")


def run(arguments: argparse.Namespace) -> int:
    """Translate, score and print."""
    from model import evaluate
    from model.errors import ModelError

    if arguments.checkpoint and (arguments.address or arguments.bundle):
        raise CommandError(
            "give one of --address, --bundle and --checkpoint.", exit_code=EXIT_USAGE
        )
    sources = list(read_lines([arguments.source]))
    references = [line.text for line in read_lines([arguments.reference])]
    if len(sources) != len(references):
        raise CommandError(
            f"{arguments.source} has {len(sources)} lines and {arguments.reference} has {len(references)}.",
            exit_code=EXIT_USAGE,
        )
    try:
        if arguments.checkpoint:
            translations = _translate_in_torch(arguments, [line.text for line in sources])
        else:
            translations = asyncio.run(_translate(arguments, sources))
        scores = evaluate.score_translations(translations, references)
    except ModelError as error:
        raise CommandError(str(error)) from error
    test_set = arguments.test_set or Path(arguments.source).name
    if arguments.json:
        found = evaluate.to_dict(scores, test_set=test_set, num_sentences=len(sources))
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        import rich.console

        table = evaluate.to_table(scores, test_set=test_set, num_sentences=len(sources))
        rich.console.Console().print(table)
    return 0


async def _translate(arguments: argparse.Namespace, sources: Sequence[Line]) -> list[str]:
    options = Options(
        source_language=arguments.source_language,
        target_language=arguments.target_language,
        model=arguments.model,
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
    )
    translations: list[str] = []
    async with open_backend(arguments) as backend:
        options = await complete(backend, options)
        with Progress(len(sources)) as progress:
            async for batch in translate_in_order(backend, iter(sources), options):
                for line, answer in batch:
                    if answer.error:
                        raise CommandError(f"{line.place}: {answer.error}")
                    translations.append(answer.text)
                progress.advance(len(batch))
    return translations


def _translate_in_torch(arguments: argparse.Namespace, texts: list[str]) -> list[str]:
    translate = _load_checkpoint(arguments)
    translations: list[str] = []
    with Progress(len(texts)) as progress:
        for start in range(0, len(texts), _CHECKPOINT_CHUNK):
            chunk = texts[start : start + _CHECKPOINT_CHUNK]
            translations += translate(chunk)
            progress.advance(len(chunk))
    return translations


def _load_checkpoint(arguments: argparse.Namespace) -> Callable[[list[str]], list[str]]:
    from model.checkpoint import load_model
    from model.generate import SearchOptions, create_translate
    from model.tokenizer import Tokenizer

    given = {"beam_size": arguments.beam_size, "length_penalty": arguments.length_penalty}
    try:
        options = SearchOptions(**{key: value for key, value in given.items() if value is not None})
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    model = load_model(arguments.checkpoint)
    return create_translate(model.eval(), Tokenizer.load_directory(arguments.checkpoint), options)
