"""The test stand: models, sources and the cores that every part measures with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.corpus import USUAL_TOKENS, load_texts
from benchmarks.engine import Ids
from benchmarks.models import EMBEDDED_CHECKPOINT, BenchModel, create_base, create_tiny
from model.tokenizer import Tokenizer
from service.engine.threads import available_cores

__all__ = ["BATCH_SIZE", "Stand"]

BATCH_SIZE = 32
"""Sentences that one worker or translator decodes together."""


@dataclass(slots=True)
class Stand:
    """What parts share. Models are made and loaded when they are first asked for."""

    directory: Path
    """Where the files of the models go; what lies there already is used again."""
    quick: bool = False
    """Fewer runs."""
    texts_file: Path | None = None
    """Source sentences, one a line; without it a few built-in ones."""
    num_cores: int = field(default_factory=available_cores)
    _models: dict[str, BenchModel] = field(default_factory=dict)
    _sources: list[Ids] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Runs of each candidate that count."""
        return 3 if self.quick else 9

    def model(self, name: str) -> BenchModel:
        """`tiny` or `base`."""
        if name not in self._models:
            create = {"tiny": create_tiny, "base": create_base}[name]
            self._models[name] = create(self.directory)
        return self._models[name]

    def sources(self, model: BenchModel) -> list[Ids]:
        """The texts as ids; for a model without a vocabulary, random ids of the same lengths."""
        if not self._sources:
            tokenizer = Tokenizer.load_directory(EMBEDDED_CHECKPOINT)
            encoded = tokenizer.encode_source_batch(load_texts(self.texts_file))
            self._sources = [tuple(source) for source in encoded]
        if model.name == "tiny":
            return list(self._sources)
        return [
            _random_source(len(source), number, model)
            for number, source in enumerate(self._sources)
        ]

    def usual_sources(self, model: BenchModel, count: int) -> list[Ids]:
        """So many sources of the usual length of a sentence; the texts come again when there are too few."""
        usual = [source for source in self.sources(model) if len(source) in USUAL_TOKENS]
        return repeated(usual or self.sources(model), count)


def repeated(sources: Sequence[Ids], count: int) -> list[Ids]:
    """The first `count` sources, from the beginning again when there are fewer."""
    return [sources[place % len(sources)] for place in range(count)]


def _random_source(length: int, seed: int, model: BenchModel) -> Ids:
    chance = random.Random(seed)
    last = model.config.source_vocab_size - 2
    return (*(chance.randint(2, last) for _ in range(length - 1)), model.special_tokens.eos_id)
