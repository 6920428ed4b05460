"""Measure how large a model's activations get on text: what `dragoman export --calibration-text` hands to int8."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.errors import CommandError

if TYPE_CHECKING:
    from export.calibration import ActivationRanges

__all__ = ["NUM_LINES", "measure_on_text", "sample_lines"]

NUM_LINES = 500
"""Lines that are translated; the ranges of more are hardly wider."""


def measure_on_text(
    checkpoint: Path, texts: Sequence[Path], max_source_tokens: int
) -> ActivationRanges:
    """Translate some lines of a text with a checkpoint, and note what goes into its layers.

    Args:
        checkpoint: Whose model it is.
        texts: Files of lines, of which the part before the first tab is the source.
        max_source_tokens: Longer lines, which the server would split, are left out.

    Raises:
        CommandError: The checkpoint or a file cannot be read, or no line is left.
        ExportError: The model has fewer positions than `max_source_tokens`.
    """
    from export.calibration import measure_ranges
    from model.checkpoint import load_model
    from model.errors import ModelError
    from model.tokenizer import Tokenizer

    try:
        transformer = load_model(checkpoint).eval()
        tokenizer = Tokenizer.load_directory(checkpoint)
        lines = sample_lines(_read_sources(texts), NUM_LINES)
    except ModelError as error:
        raise CommandError(str(error)) from error
    encoded = tokenizer.encode_source_batch(lines)
    sources = [ids for ids in encoded if 1 < len(ids) <= max_source_tokens]
    if not sources:
        raise CommandError(
            f"the text to calibrate on has no line of 1 to {max_source_tokens - 1} tokens."
        )
    return measure_ranges(transformer, sources)


def sample_lines(lines: Iterable[str], count: int) -> list[str]:
    """Draw lines at random, each as likely as the other, the same ones every time; only `count` are ever held.

    Algorithm R (Vitter 1985, "Random sampling with a reservoir").
    """
    rng = random.Random(0)  # noqa: S311 - no secret
    kept: list[str] = []
    for number, line in enumerate(lines):
        if number < count:
            kept.append(line)
        elif (place := rng.randrange(number + 1)) < count:
            kept[place] = line
    return kept


def _read_sources(texts: Sequence[Path]) -> Iterator[str]:
    """Give what stands before the first tab, unless that is blank."""
    from model.parallel_text import read_lines

    for path in texts:
        for line in read_lines(path):
            source = line.partition("\t")[0]
            if source.strip():
                yield source
