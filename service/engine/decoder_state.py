"""Stages 5 and 6 of 10: the rows of one worker, their caches, and where they lie.

Logical order is what everybody else sees: sentences as they joined, the rows of one sentence adjacent. Physical places
are chosen so that little is copied (`placement`). All rows of a sentence have the same age, so lengths are kept for
sentences.

Two sentences in slots 0 and 1; the first has beam 2, the second has just joined with one row:

    logical row   0  1  2        places       1  0  2
    sentence      0  0  1        lane         0  1  0
    lane_rows     [[1, 0], [2, 2]]            an unused lane repeats the sentence's first row
    row_lanes     [1, 0, 2]                   by place: sentence slot * 2 + lane

As long as every sentence keeps its number of rows, children exchange the places of their sentence among themselves. A
lane belongs to a place, so lanes and lengths by place then stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.lanes import place_heads
from export.signature import MIN_LANES
from service.engine.cross_attention_cache import CrossAttentionCache, EncodedBatch
from service.engine.placement import exchange, inherit
from service.engine.self_attention_cache import SelfAttentionCache
from service.engine.shared_prefixes import SharedPrefixes
from service.rows import RowMoves

__all__ = ["CacheShape", "DecoderState", "StepInputs"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What the caches of a model look like."""

    num_layers: int
    num_heads: int
    head_size: int
    start_id: int
    """Input of the decoder before the first token."""
    int8_caches: bool = False
    """Whether self-attention keeps int8, not float32."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What the decoder graph reads in one step, beside the caches. By place, not by logical row."""

    input_ids: IntArray
    """(R,)"""
    past_lengths: NDArray[np.int32]
    """(R,)"""
    lane_heads: IntArray
    """(B, H, J)"""
    row_heads: IntArray
    """(R, H)"""
    row_slots: IntArray
    """Slot of each row's sentence, (R,)."""
    lane_rows: IntArray
    """Row in each lane, (B, J)."""
    row_lanes: IntArray
    """Lane of each row, sentence slot * J + lane, (R,)."""


class DecoderState:
    """Rows, caches and places.

    Attributes:
        places: Place of each logical row, (R,).
        self_attention: Caches of the rows, by place.
        cross_attention: Caches of the sentences, by slot.
    """

    _lanes: tuple[IntArray, IntArray, IntArray, IntArray, IntArray] | None
    """What `StepInputs` ends with, from `lane_heads` on, until a sentence has other places."""
    _past_lengths: NDArray[np.int32]
    """By place, as long as `_lanes` hold."""

    def __init__(self, shape: CacheShape, min_lanes: int = MIN_LANES) -> None:
        """Begin without rows.

        Args:
            shape: What the caches look like.
            min_lanes: Lanes that a sentence has at least. 1 is for sentences that never have a second row, and only for
                them: a row that is alone in cross-attention gets other bits than the same row among several.
        """
        self._min_lanes = min_lanes
        self._start_id = shape.start_id
        self._num_heads = shape.num_heads
        self.self_attention = SelfAttentionCache(
            shape.num_layers,
            shape.num_heads,
            shape.head_size,
            np.int8 if shape.int8_caches else np.float32,
        )
        self.cross_attention = CrossAttentionCache(
            shape.num_layers, shape.num_heads, shape.head_size
        )
        self.reset()

    def reset(self) -> None:
        """Drop all rows."""
        empty = np.empty(0, np.int64)
        self.places = empty
        self._tokens = empty
        self._slots = empty
        self._lengths = empty
        self._longest = 0
        self._row_counts = empty
        self._shared = SharedPrefixes()
        self._lay_out()
        self.cross_attention.keep(empty)
        self.self_attention.release()

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.places)

    @property
    def num_sentences(self) -> int:
        """B."""
        return len(self._slots)

    @property
    def sentence_slots(self) -> IntArray:
        """Slot of each sentence, (B,)."""
        return self._slots

    @property
    def row_sentences(self) -> IntArray:
        """Sentence of each logical row, (R,)."""
        return self._row_sentence

    @property
    def longest_source(self) -> int:
        """S, padding included."""
        return self.cross_attention.padded_length if self.num_rows else 0

    @property
    def live_bytes(self) -> int:
        """Bytes of positions that hold something."""
        positions = int(self._lengths @ self._row_counts)
        return positions * self.self_attention.bytes_per_position + self.cross_attention.live_bytes

    @property
    def reserved_bytes(self) -> int:
        """Memory held."""
        return self.self_attention.num_bytes + self.cross_attention.num_bytes

    def admit(self, batches: list[EncodedBatch]) -> None:
        """Append sentences with one row each, in the order of their places."""
        count = sum(len(batch.places) for batch in batches)
        self._grow(self.num_rows + count)
        slots = np.empty(count, np.int64)
        for batch in batches:
            slots[batch.places] = self.cross_attention.admit(batch)
        self._slots = np.concatenate([self._slots, slots])
        self.places = np.concatenate([self.places, self.num_rows + np.arange(count)])
        self._tokens = np.concatenate([self._tokens, np.full(count, self._start_id)])
        self._lengths = np.concatenate([self._lengths, np.zeros(count, np.int64)])
        self._row_counts = np.concatenate([self._row_counts, np.ones(count, np.int64)])
        self._shared.add(count)
        self._lay_out()

    def step_inputs(self) -> StepInputs:
        """Make room for one more token a row, and give the inputs of the step that writes it."""
        self._grow(self.num_rows)
        places = self.places
        input_ids = np.empty(len(places), np.int64)
        input_ids[places] = self._tokens
        if self._lanes is None:
            self._lanes = self._lay_lanes()
            self._past_lengths = np.empty(len(places), np.int32)
            self._past_lengths[places] = self._lengths[self._row_sentence]
        return StepInputs(input_ids, self._past_lengths, *self._lanes)

    def _lay_lanes(self) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        """Give `lane_heads` and what follows it in `StepInputs`."""
        places, slots = self.places, self._slots[self._row_sentence]
        num_lanes = max(self._min_lanes, int(self._row_counts.max()))
        lane_rows = np.empty((self.num_sentences, num_lanes), np.int64)
        lane_rows[self._slots] = places[self._first_row][:, None]
        lane_rows[slots, self._offset] = places
        row_slots, row_lanes = np.empty((2, self.num_rows), np.int64)
        row_slots[places], row_lanes[places] = slots, slots * num_lanes + self._offset
        heads = place_heads(lane_rows, row_lanes, self._num_heads)
        return *heads, row_slots, lane_rows, row_lanes

    def note_step(self) -> None:
        """The graph wrote one token more of each row."""
        self._longest += 1
        self._lengths = self._lengths + 1
        self._past_lengths = self._past_lengths + 1

    def gather(self, moves: RowMoves) -> None:
        """As `Decoder.gather`."""
        self._tokens = moves.token_ids
        counts, own = moves.row_counts, self._row_counts
        if counts is own or (len(counts) == len(own) and (counts == own).all()):
            self._exchange(moves.parent_rows)
        else:
            self._regroup(moves)

    def _exchange(self, parents: IntArray) -> None:
        """Let rows continue others of their sentence, which stays as many rows as it was."""
        if (parents == self._rows).all():
            return  # every row continues itself
        places, lengths = self.places.take(parents), self._lengths.take(self._row_sentence)
        found = exchange(parents)
        copied, freed = found.copied, found.childless
        if len(copied):
            starts = self._shared.of(parents.take(copied), self._offset.take(freed))
            destinations = self.places.take(freed)
            ends = lengths.take(copied)
            self.self_attention.copy(places.take(copied), destinations, starts, ends)
            places[copied] = destinations
        self.places = places
        self._shared.gather(parents, self._offset.take(parents), lengths, self._row_counts)

    def _regroup(self, moves: RowMoves) -> None:
        """Let rows continue others, when sentences leave or have another number of rows."""
        parents, kept = moves.parent_rows, moves.kept_sentences
        self._grow(len(parents))
        lengths = self._lengths[self._row_sentence[parents]]
        self._place(parents, lengths)
        self._shared.gather(parents, self._offset[parents], lengths, moves.row_counts)
        if len(kept) < self.num_sentences:
            self._slots = self.cross_attention.keep(self._slots[kept])
            self._lengths = self._lengths[kept]
            self._longest = int(self._lengths.max(initial=0))
        self._row_counts = moves.row_counts
        if not self.num_rows:
            self.self_attention.release()
        self._lay_out()

    def _place(self, parents: IntArray, lengths: IntArray) -> None:
        """Give the children of `parents` their places, and copy what they do not find there."""
        row_at = np.empty(self.num_rows, np.int64)
        row_at[self.places] = np.arange(self.num_rows)
        sentence_at = self._row_sentence[row_at]
        placement = inherit(self.places[parents], sentence_at)
        copied = placement.copied
        if len(copied):
            rows, destinations = parents[copied], placement.destinations
            was_there = row_at[np.minimum(destinations, self.num_rows - 1)]
            is_sibling = self._row_sentence[was_there] == self._row_sentence[rows]
            is_sibling &= destinations < self.num_rows
            starts = np.where(is_sibling, self._shared.of(rows, self._offset[was_there]), 0)
            self.self_attention.copy(placement.sources, destinations, starts, lengths[copied])
        self.places = placement.places

    def _grow(self, num_rows: int) -> None:
        """Make room for so many rows, each with one token more than it has."""
        longest = self._longest + 1
        if self.self_attention.fits(num_rows, longest):
            return
        lengths = np.empty(self.num_rows, np.int64)
        lengths[self.places] = self._lengths[self._row_sentence]
        self.self_attention.fit(num_rows, longest, lengths)

    def _lay_out(self) -> None:
        """Which rows belong to which sentence, after either changed."""
        self._lanes = None
        counts = self._row_counts
        self._first_row = counts.cumsum() - counts  # (B,)
        self._rows = np.arange(len(self.places))  # (R,)
        self._row_sentence = np.repeat(np.arange(len(counts)), counts)  # (R,)
        self._offset = self._rows - self._first_row[self._row_sentence]  # within its sentence, (R,)
