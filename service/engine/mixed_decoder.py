"""Stage 6 of 10: rows that must not run together: one decoder for each kind.

With a shortlist or without there are different graphs. Sentences that never have more than one row need one lane in
cross-attention, which saves a sixteenth of a step, but gives other bits than several lanes. A sentence stays with its
decoder from its first step to its last, so it does not notice who runs in the others. While all sentences are of one
kind, everything goes straight to their decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.base import Decoder, Encoded
from service.engine.cross_attention_cache import EncodedBatch
from service.engine.onnx_decoder import OnnxEncoded
from service.rows import Candidates, Edits, RowMoves

__all__ = ["MixedDecoder", "RowKind"]

IntArray = NDArray[np.int64]


class RowKind(NamedTuple):
    """What decides who runs together."""

    is_listed: bool
    """Whether the sentence has a shortlist."""
    is_greedy: bool
    """Whether it never has more than one row."""


class MixedDecoder:
    """Several decoders as one; each sentence belongs to one of them.

    Args:
        decoders: By what they decode.
    """

    def __init__(self, decoders: Mapping[RowKind, Decoder]) -> None:
        self._decoders = tuple(decoders.values())
        self._numbers = {kind: number for number, kind in enumerate(decoders)}
        self._set(np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def num_rows(self) -> int:
        if self._only is not None:
            return self._only.num_rows
        return sum(decoder.num_rows for decoder in self._decoders)

    @property
    def longest_source(self) -> int:
        if self._only is not None:
            return self._only.longest_source
        return max(decoder.longest_source for decoder in self._decoders)

    @property
    def live_bytes(self) -> int:
        if self._only is not None:
            return self._only.live_bytes
        return sum(decoder.live_bytes for decoder in self._decoders)

    @property
    def reserved_bytes(self) -> int:
        return sum(decoder.reserved_bytes for decoder in self._decoders)

    def admit(self, encoded: Encoded) -> None:
        if not isinstance(encoded, OnnxEncoded):
            raise TypeError(encoded)
        kinds = np.array(
            [
                self._numbers[RowKind(words is not None, is_greedy)]
                for words, is_greedy in zip(encoded.word_lists, encoded.are_greedy, strict=True)
            ],
            np.int64,
        )
        for kind, decoder in enumerate(self._decoders):
            chosen = (kinds == kind).nonzero()[0]
            if len(chosen):
                decoder.admit(_select(encoded, chosen.tolist()))
        self._set(
            np.concatenate([self._kinds, kinds]),
            np.concatenate([self._row_counts, np.ones(len(kinds), np.int64)]),
        )

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        if self._only is not None:
            return self._only.decode(num_candidates, edits)
        kinds, rows = self._row_places()
        token_ids = np.empty((len(kinds), num_candidates), np.int64)
        log_probs = np.empty((len(kinds), num_candidates), np.float32)
        for kind, decoder in self._present():
            mine = kinds[edits.rows] == kind
            own = Edits(
                rows[edits.rows[mine]],
                edits.token_ids[mine],
                edits.scales[mine],
                edits.biases[mine],
            )
            found = decoder.decode(num_candidates, own)
            token_ids[kinds == kind], log_probs[kinds == kind] = found.token_ids, found.log_probs
        return Candidates(token_ids, log_probs)

    def gather(self, moves: RowMoves) -> None:
        kept = moves.kept_sentences
        if self._only is not None:
            self._only.gather(moves)
        else:
            row_kinds, rows = self._row_places()
            sentences = _places_among_equals(self._kinds)
            for kind, decoder in self._present():
                mine = row_kinds[moves.parent_rows] == kind  # (R',)
                stays = self._kinds[kept] == kind  # (B',)
                decoder.gather(
                    RowMoves(
                        rows[moves.parent_rows[mine]],
                        moves.token_ids[mine],
                        sentences[kept[stays]],
                        moves.row_counts[stays],
                    )
                )
        if len(kept) < len(self._kinds):
            self._set(self._kinds[kept], moves.row_counts)
        else:
            self._row_counts = moves.row_counts

    def reset(self) -> None:
        for decoder in self._decoders:
            decoder.reset()
        self._set(np.empty(0, np.int64), np.empty(0, np.int64))

    def _set(self, kinds: IntArray, row_counts: IntArray) -> None:
        """Note kind and number of rows of each sentence, (B,) each, and the decoder of all, if they are of one kind."""
        self._kinds, self._row_counts = kinds, row_counts
        first = kinds[0] if len(kinds) else 0
        self._only: Decoder | None = self._decoders[first] if (kinds == first).all() else None

    def _present(self) -> list[tuple[int, Decoder]]:
        """Give the decoders that have sentences."""
        return [(kind, self._decoders[kind]) for kind in np.unique(self._kinds).tolist()]

    def _row_places(self) -> tuple[IntArray, IntArray]:
        """Give the kind of each row, and its place among the rows of its kind; (R,) each."""
        kinds = self._kinds.repeat(self._row_counts)
        return kinds, _places_among_equals(kinds)


def _places_among_equals(kinds: IntArray) -> IntArray:
    """Count each kind by itself: [1, 0, 1, 1] gives [0, 0, 1, 2]."""
    order = kinds.argsort(kind="stable")
    ascending = kinds[order]
    places = np.empty(len(kinds), np.int64)
    places[order] = np.arange(len(kinds)) - ascending.searchsorted(ascending)
    return places


def _select(encoded: OnnxEncoded, chosen: Sequence[int]) -> OnnxEncoded:
    """Take some of the sentences, in their order."""
    if len(chosen) == len(encoded.word_lists):
        return encoded
    new_place = {place: number for number, place in enumerate(chosen)}
    batches = []
    for batch in encoded.batches:
        rows = [row for row, place in enumerate(batch.places) if place in new_place]
        if rows:
            batches.append(
                EncodedBatch(
                    [new_place[batch.places[row]] for row in rows],
                    batch.lengths[rows],
                    [keys[rows] for keys in batch.keys],
                    [values[rows] for values in batch.values],
                )
            )
    return OnnxEncoded(
        batches,
        encoded.num_padded_tokens,
        [encoded.word_lists[place] for place in chosen],
        [encoded.are_greedy[place] for place in chosen],
    )
