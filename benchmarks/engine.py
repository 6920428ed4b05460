"""What is compared: something that turns source ids into target ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Ids", "Search", "TranslationEngine"]

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How to search, in every engine the same."""

    beam_size: int
    num_tokens: int | None = None
    """Target tokens of every sentence, without the end of the sentence; None: each ends where the model ends it.

    The rules for stopping a beam differ between engines, so beams are compared at a length that is forced.
    """


class TranslationEngine(Protocol):
    """One engine with one model in one precision on a number of threads."""

    @property
    def label(self) -> str:
        """What it is and how it runs, as the tables name it."""

    def translate(self, sources: Sequence[Ids], search: Search) -> list[Ids]:
        """Translate ids with EOS to ids without EOS; encoder, search and all copies included."""
