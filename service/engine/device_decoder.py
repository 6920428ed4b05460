"""Stage 6 of 10: rows in a decoder graph whose caches stay in the memory of a device.

Only token ids, lengths and lanes go over the bus, and candidates come back. A row lies where logical order has it:
moving all of them on the device costs less than finding out here which of them could stay.
"""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import signature
from export.lanes import place_heads
from service.engine.base import Encoded
from service.engine.decoder_state import CacheShape
from service.engine.device_cross_attention import DeviceBatch, DeviceCrossAttention, Sources
from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import DeviceArray, DeviceBinding
from service.engine.device_self_attention import DeviceSelfAttention
from service.engine.sessions import RUN_ERRORS
from service.errors import EngineStepError
from service.rows import Candidates, Edits, RowMoves

__all__ = ["DeviceDecoder", "DeviceEncoded"]

IntArray = NDArray[np.int64]

_NONE: IntArray = np.empty(0, np.int64)


class DeviceEncoded:
    """Sentences that went through the encoder, in batches of similar length."""

    def __init__(self, batches: list[DeviceBatch]) -> None:
        self.batches = batches
        self.num_padded_tokens = sum(
            len(batch.lengths) * batch.values.shape[3] for batch in batches
        )


class DeviceDecoder:
    """Rows of one worker; what lies where is the caches' business."""

    _tokens: IntArray
    """Next input of each row, (R,)."""
    _lengths: IntArray
    """Cached positions of the rows of each sentence, (B,)."""
    _row_counts: IntArray
    """Rows of each sentence, (B,)."""
    _lanes: tuple[IntArray, IntArray] | None
    """`lane_heads` and `row_heads`, until rows move."""

    def __init__(
        self,
        session: ort.InferenceSession,
        shape: CacheShape,
        dtype: type[np.generic],
        graphs: DeviceGraphs,
        vocab_size: int,
    ) -> None:
        self._binding = DeviceBinding(session)
        self._start_id = shape.start_id
        self._num_heads = shape.num_heads
        self._width = signature.padded_vocab_size(vocab_size)
        self._self_attention = DeviceSelfAttention(shape, dtype, graphs)
        self._cross_attention = DeviceCrossAttention(shape, dtype, graphs)
        self.reset()

    @property
    def num_rows(self) -> int:
        return len(self._tokens)

    @property
    def longest_source(self) -> int:
        return self._cross_attention.padded_length

    @property
    def live_bytes(self) -> int:
        positions = int(self._lengths @ self._row_counts)
        rows = positions * self._self_attention.bytes_per_position
        return rows + self._cross_attention.live_bytes

    @property
    def reserved_bytes(self) -> int:
        return self._self_attention.num_bytes + self._cross_attention.num_bytes

    def admit(self, encoded: Encoded) -> None:
        if not isinstance(encoded, DeviceEncoded):
            raise TypeError(encoded)
        count = sum(len(batch.lengths) for batch in encoded.batches)
        self._self_attention.append(count)
        self._cross_attention.admit(encoded.batches)
        self._tokens = np.concatenate([self._tokens, np.full(count, self._start_id)])
        self._lengths = np.concatenate([self._lengths, np.zeros(count, np.int64)])
        self._row_counts = np.concatenate([self._row_counts, np.ones(count, np.int64)])
        self._lanes = None

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        shape = (self.num_rows, num_candidates)
        self._feed_rows()
        self._feed_edits(edits)
        self._binding.feed(signature.NUM_CANDIDATES, np.array([num_candidates], np.int64))
        self._binding.feed(signature.LOG_PROB_ROWS, _NONE)
        token_ids = self._binding.collect(signature.CANDIDATE_IDS, shape, np.int64)
        log_probs = self._binding.collect(signature.CANDIDATE_LOG_PROBS, shape, np.float32)
        try:
            self._bind_self_attention(self._self_attention.prepare(int(self._lengths.max()) + 1))
            self._bind_cross_attention(self._cross_attention.prepare())
            self._binding.run()
        except RUN_ERRORS as error:
            raise EngineStepError("The decoder failed.") from error
        self._lengths = self._lengths + 1
        return Candidates(token_ids.copy(), log_probs.copy())

    def gather(self, moves: RowMoves) -> None:
        self._self_attention.gather(moves.parent_rows)
        self._cross_attention.keep(moves.kept_sentences)
        self._tokens = moves.token_ids
        self._lengths = self._lengths[moves.kept_sentences]
        self._row_counts, self._lanes = moves.row_counts, None
        if not self.num_rows:
            self.reset()

    def reset(self) -> None:
        self._tokens = self._lengths = self._row_counts = _NONE
        self._lanes = None
        self._self_attention.reset()
        self._cross_attention.reset()
        self._binding.forget_device()

    def _feed_rows(self) -> None:
        lengths = self._lengths.repeat(self._row_counts).astype(np.int32)
        if self._lanes is None:
            self._lanes = place_heads(*_lay_lanes(self._row_counts), self._num_heads)
        self._binding.feed(signature.INPUT_IDS, self._tokens)
        self._binding.feed(signature.PAST_LENGTHS, lengths)
        self._binding.feed(signature.LANE_HEADS, self._lanes[0])
        self._binding.feed(signature.ROW_HEADS, self._lanes[1])

    def _feed_edits(self, edits: Edits) -> None:
        positions = edits.rows * self._width + edits.token_ids  # (E,)
        self._binding.feed(signature.EDIT_POSITIONS, positions)
        self._binding.feed(signature.EDIT_SCALES, edits.scales)
        self._binding.feed(signature.EDIT_BIASES, edits.biases)

    def _bind_self_attention(self, cache: DeviceArray) -> None:
        """Past and present are the same memory."""
        for layer in range(cache.shape[0] // 2):
            keys, values = cache.part(2 * layer), cache.part(2 * layer + 1)
            self._binding.read_device(signature.past_self_key(layer), keys)
            self._binding.read_device(signature.past_self_value(layer), values)
            self._binding.write_device(signature.present_self_key(layer), keys)
            self._binding.write_device(signature.present_self_value(layer), values)
        self._binding.feed(signature.TOTAL_LENGTH, np.array(cache.shape[3], np.int32))

    def _bind_cross_attention(self, sources: Sources) -> None:
        for layer in range(sources.keys.shape[0]):
            self._binding.read_device(signature.cross_key(layer), sources.keys.part(layer))
            self._binding.read_device(signature.cross_value(layer), sources.values.part(layer))
        self._binding.read_device(signature.ENCODER_MASK, sources.mask)


def _lay_lanes(row_counts: IntArray) -> tuple[IntArray, IntArray]:
    """Give `lane_rows` (B, J) and `row_lanes` (R,): an unused lane repeats the sentence's first row.

    Row counts [2, 1] give [[0, 1], [2, 2]] and [0, 1, 2].
    """
    num_lanes = max(signature.MIN_LANES, int(row_counts.max()))
    first_rows = row_counts.cumsum() - row_counts
    lanes = np.arange(num_lanes)
    lane_rows = first_rows[:, None] + np.where(lanes < row_counts[:, None], lanes, 0)
    is_used = (lanes < row_counts[:, None]).ravel()
    return lane_rows, is_used.nonzero()[0]
