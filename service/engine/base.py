"""Stages 5 and 6 of 10: the contract between the driver and whatever runs the graphs.

An engine knows tensors and nothing of requests, time or limits. `Engine` is shared by all workers and holds nothing
that a step changes; a `Decoder` belongs to one worker and holds everything that a step changes. Layout of the rows:
`service/rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.rows import Candidates, Edits, RowMoves

__all__ = ["Decoder", "Encoded", "Engine", "EngineFacts", "SearchKind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the search must know of a model."""

    vocab_size: int
    eos_id: int


class SearchKind(NamedTuple):
    """What an engine must know of how a sentence is searched. It never changes while the sentence runs."""

    full_vocabulary: bool = False
    """Over all words, although the model has a shortlist."""
    is_greedy: bool = False
    """It never has more than one row."""


class Encoded(Protocol):
    """Sentences that went through the encoder; the rest is between an engine and its decoders."""

    @property
    def num_padded_tokens(self) -> int:
        """Positions that the encoder computed, padding included."""


class Decoder(Protocol):
    """The rows that are being decoded, with their caches. Owned by one thread."""

    @property
    def num_rows(self) -> int:
        """Rows of the next step, R."""

    @property
    def longest_source(self) -> int:
        """Source positions that each row of the next step attends to, padding included; 0 without rows."""

    @property
    def live_bytes(self) -> int:
        """Bytes of caches that hold something: exactly 0 without rows."""

    @property
    def reserved_bytes(self) -> int:
        """Memory held for caches."""

    def admit(self, encoded: Encoded) -> None:
        """Append encoded sentences, in order, each with one row that stands before its first token."""

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        """Run the decoder for one step of all rows; each then holds one token more in its cache.

        Args:
            num_candidates: How many candidates a row, N; at most the vocabulary size.
            edits: Changes of the distribution, rows in logical order.

        Returns:
            Candidates in logical order. They do not depend on the other rows.

        Raises:
            EngineStepError: The step failed. Only `reset` may follow.
        """

    def gather(self, moves: RowMoves) -> None:
        """Let the next rows continue the rows that `moves` names; rows without a child are freed.

        `gather(a)` and then `gather(b)` leaves the same rows as one `gather` whose parents are
        `a.parent_rows[b.parent_rows]`.
        """

    def reset(self) -> None:
        """Drop all rows."""


class Engine(Protocol):
    """One loaded model. Safe to be used by several threads."""

    @property
    def facts(self) -> EngineFacts:
        """What the search must know."""

    def cache_bytes(
        self, num_rows: int, target_length: int, num_sentences: int, source_length: int
    ) -> int:
        """Memory that a decoder holds, at most, for so many rows and sentences of such lengths."""

    def create_decoder(self) -> Decoder:
        """A decoder without rows, for one worker."""

    def encode(
        self, sources: Sequence[tuple[int, ...]], kinds: Sequence[SearchKind] = ()
    ) -> Encoded:
        """Run the encoder. Changes no decoder, so a failure harms these sentences only.

        Args:
            sources: Token ids of each sentence, EOS included, any lengths, any order.
            kinds: How each sentence will be searched; empty: all with several rows, and the shortlist of the model.

        Raises:
            EngineStepError: The encoder failed.
        """
