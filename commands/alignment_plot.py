"""`dragoman translate --alignment-plot`: what a checkpoint looked at while it translated, as a picture."""

from __future__ import annotations

import argparse

from commands.errors import EXIT_USAGE, CommandError
from commands.lines import check_text

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--alignment-plot",
        metavar="FILE.png",
        help="draw which source pieces each target piece attends to; needs TEXT and --checkpoint",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="the checkpoint that translates, in torch, for --alignment-plot",
    )
    parser.add_argument(
        "--translation",
        metavar="TEXT",
        help="draw this translation in place of the checkpoint's own",
    )


def run(arguments: argparse.Namespace) -> int:
    """Translate one text in torch, print the translation and draw its cross-attention."""
    _check(arguments)
    from pathlib import Path

    from model.alignment import align, draw_alignment
    from model.checkpoint import load_model
    from model.errors import ModelError
    from model.generate import SearchOptions, beam_search
    from model.tokenizer import Tokenizer

    given = {"beam_size": arguments.beam_size, "length_penalty": arguments.length_penalty}
    try:
        options = SearchOptions(**{key: value for key, value in given.items() if value is not None})
        model = load_model(Path(arguments.checkpoint))
        tokenizer = Tokenizer.load_directory(Path(arguments.checkpoint))
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    except ModelError as error:
        raise CommandError(str(error)) from error
    source = tokenizer.encode_source(arguments.text)
    if arguments.translation is None:
        best = beam_search(model, source, options)[0]
        target = [*best.token_ids, *([] if best.truncated else [tokenizer.eos_id])]
    else:
        target = tokenizer.encode_target(arguments.translation)
    draw_alignment(align(model, tokenizer, source, target), Path(arguments.alignment_plot))
    print(tokenizer.decode_target(target))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if not arguments.alignment_plot:
        raise CommandError(
            "--checkpoint and --translation need --alignment-plot.", exit_code=EXIT_USAGE
        )
    if not arguments.text or not arguments.text.strip() or not arguments.checkpoint:
        raise CommandError("--alignment-plot needs TEXT and --checkpoint.", exit_code=EXIT_USAGE)
    if arguments.address or arguments.bundle or arguments.file or arguments.json:
        raise CommandError(
            "--alignment-plot goes with neither --address, --bundle, --file nor --json.",
            exit_code=EXIT_USAGE,
        )
    check_text(arguments.text, "TEXT")
    if arguments.translation is not None:
        check_text(arguments.translation, "--translation")
