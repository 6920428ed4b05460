"""Make the vocabulary shortlist of a bundle from text: pairs as they are, sources alone after translating them.

What is translated is translated by the model itself, from a bundle of its own without a shortlist that is thrown away.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from commands.errors import CommandError
from commands.lines import Line

if TYPE_CHECKING:
    from commands.backend import Backend
    from export.alignment_counts import TokenPairs
    from export.shortlist import Shortlist
    from model.tokenizer import Tokenizer

__all__ = ["OwnTranslations", "create_shortlist", "read_token_pairs"]

_LINES_AT_ONCE = 50_000
_MOST_TOKENS = 256
"""Longer sentences teach little and cost much: every word is linked with every other."""


def create_shortlist(
    checkpoint: Path,
    texts: Sequence[tuple[Path, bool]],
    build: Callable[[TokenPairs, Tokenizer], Shortlist],
    write_bundle: Callable[[Path], object],
) -> Shortlist:
    """Read text and align it.

    Args:
        checkpoint: Whose vocabulary it is.
        texts: Files, and whether their first column is the target.
        build: Makes the lists from pairs of tokens.
        write_bundle: Writes a bundle without a shortlist into a directory; called if a line has no translation.

    Raises:
        CommandError: A file cannot be read, or holds nothing.
    """
    from model.errors import ModelError
    from model.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.load_directory(checkpoint)
        with OwnTranslations(write_bundle) as translations:
            pairs = read_token_pairs(texts, tokenizer, translations.translate)
    except ModelError as error:
        raise CommandError(str(error)) from error
    if not len(pairs):
        raise CommandError("there is no text to make a shortlist from.")
    return build(pairs, tokenizer)


def read_token_pairs(
    texts: Sequence[tuple[Path, bool]],
    tokenizer: Tokenizer,
    translate: Callable[[list[str]], list[str]],
) -> TokenPairs:
    """Read source TAB target, or sources alone, which are translated; a side that is empty or very long is left out."""
    from export.alignment_counts import TokenPairs

    parts = [TokenPairs.from_lists([], [])]
    stream = _read(texts)
    while lines := list(itertools.islice(stream, _LINES_AT_ONCE)):
        alone = [source for source, target in lines if target is None]
        found = iter(translate(alone) if alone else ())
        pairs = [(s, next(found) if t is None else t) for s, t in lines]
        sources = tokenizer.encode_source_batch([source for source, _ in pairs])
        targets = tokenizer.encode_target_batch([target for _, target in pairs])
        kept = [
            (source, target)
            for source, target in zip(sources, targets, strict=True)
            if 1 < len(source) <= _MOST_TOKENS and 1 < len(target) <= _MOST_TOKENS
        ]
        parts.append(TokenPairs.from_lists([s for s, _ in kept], [t for _, t in kept]))
    return TokenPairs.concatenate(parts)


def _read(texts: Sequence[tuple[Path, bool]]) -> Iterator[tuple[str, str | None]]:
    """Give sources and, where there are some, targets."""
    from model.errors import DataError
    from model.parallel_text import read_lines

    for path, is_reversed in texts:
        for number, line in enumerate(read_lines(path), start=1):
            source, tab, target = line.partition("\t")
            if "\t" in target or (is_reversed and not tab):
                raise DataError(f"{path}:{number}: there must be one tab, between the two sides.")
            if is_reversed:
                source, target = target, source
            yield source, target if tab else None


class OwnTranslations:
    """The model that is being exported, at work as soon as it is asked for."""

    def __init__(self, write_bundle: Callable[[Path], object]) -> None:
        self._write_bundle = write_bundle
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._backend: Backend | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._runner.run(self._stack.aclose())
        self._runner.close()

    def translate(self, texts: list[str]) -> list[str]:
        """Translate greedily, in order; what cannot be translated becomes nothing."""
        return self._runner.run(self._translate(texts))

    async def _translate(self, texts: list[str]) -> list[str]:
        from commands.backend import Options, choose_pair
        from commands.pipeline import translate_in_order

        backend = self._backend or await self._open()
        options = choose_pair(await backend.list_pairs(), Options(beam_size=1))
        lines = (Line(text, "\n", f"line {number}") for number, text in enumerate(texts, start=1))
        return [
            answer.text
            async for batch in translate_in_order(backend, lines, options)
            for _, answer in batch
        ]

    async def _open(self) -> Backend:
        from commands.local import LocalBackend

        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "bundle"
        self._write_bundle(directory)
        self._backend = await self._stack.enter_async_context(LocalBackend([directory]))
        return self._backend
