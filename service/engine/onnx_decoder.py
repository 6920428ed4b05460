"""Stage 6 of 10: rows in the decoder graph.

The graph updates its caches in place: past input and present output are bound to the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import signature
from service.engine.base import Encoded
from service.engine.cross_attention_cache import CrossAttentionCache, EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState, StepInputs
from service.engine.graph_binding import GraphBinding
from service.engine.sessions import RUN_ERRORS
from service.errors import EngineStepError
from service.rows import Candidates, Edits, RowMoves

__all__ = ["Bound", "OnnxDecoder", "OnnxEncoded"]

AnyArray = NDArray[np.generic]

_NO_ROWS = np.empty(0, np.int64)
"""No row's whole distribution is wanted: sampling is not built yet."""
_NO_POSITIONS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class OnnxEncoded:
    """Sentences that went through the encoder, in batches of similar length."""

    batches: list[EncodedBatch]
    num_padded_tokens: int
    word_lists: list[NDArray[np.int64] | None]
    """Words of each sentence's shortlist, ascending; None for all words."""
    are_greedy: list[bool]
    """Whether each sentence never has more than one row."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An array whose first rows, or sentences, are bound to the graph."""

    array: AnyArray
    count: int

    def is_same(self, array: AnyArray, count: int) -> bool:
        """Whether these are bound already."""
        return array is self.array and count == self.count


class OnnxDecoder:
    """Rows of one worker that all run in one graph; `min_lanes` as for `DecoderState`."""

    def __init__(
        self,
        session: ort.InferenceSession,
        shape: CacheShape,
        vocab_size: int,
        min_lanes: int = signature.MIN_LANES,
    ) -> None:
        self._width = signature.padded_vocab_size(vocab_size)
        """Words that a row looks at, padding included."""
        self._binding = GraphBinding(session)
        self._bound_self: Bound | None = None
        self._bound_cross: Bound | None = None
        self._output = Candidates(np.empty((0, 0), np.int64), np.empty((0, 0), np.float32))
        """By place, as the graph writes them."""
        self._binding.feed(signature.LOG_PROB_ROWS, _NO_ROWS)
        self.state = DecoderState(shape, min_lanes)

    @property
    def num_rows(self) -> int:
        return self.state.num_rows

    @property
    def longest_source(self) -> int:
        return self.state.longest_source

    @property
    def live_bytes(self) -> int:
        return self.state.live_bytes

    @property
    def reserved_bytes(self) -> int:
        return self.state.reserved_bytes

    def admit(self, encoded: Encoded) -> None:
        if not isinstance(encoded, OnnxEncoded):
            raise TypeError(encoded)
        self.state.admit(encoded.batches)

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        inputs = self.state.step_inputs()
        places = self.state.places
        self._bind_caches()
        self._feed_rows(inputs)
        self._feed_edits(edits, places, inputs)
        self._bind_output((len(places), num_candidates))
        try:
            self._binding.run()
        except RUN_ERRORS as error:
            raise EngineStepError("The decoder failed.") from error
        self.state.note_step()
        output = self._output
        return Candidates(
            output.token_ids.take(places, axis=0), output.log_probs.take(places, axis=0)
        )

    def gather(self, moves: RowMoves) -> None:
        self.state.gather(moves)
        if not self.state.num_rows:
            self._forget_caches()

    def reset(self) -> None:
        self.state.reset()
        self._forget_caches()

    def _forget_caches(self) -> None:
        """Hold no caches that the state may have given back; the next step binds what is there then."""
        self._bound_self = self._bound_cross = None

    def _bind_caches(self) -> None:
        """Bind caches again that have moved, or whose number of rows or sentences has changed."""
        state = self.state
        buffer, cross = state.self_attention.buffer, state.cross_attention
        if self._bound_self is None or not self._bound_self.is_same(buffer, state.num_rows):
            self._bound_self = Bound(buffer, state.num_rows)
            self._bind_self_attention(buffer[:, :, : state.num_rows])
        if self._bound_cross is None or not self._bound_cross.is_same(
            cross.keys, state.num_sentences
        ):
            self._bound_cross = Bound(cross.keys, state.num_sentences)
            self._bind_cross_attention(cross, slice(state.num_sentences))

    def _bind_self_attention(self, buffer: AnyArray) -> None:
        for layer, (keys, values) in enumerate(buffer):
            self._binding.bind_input(signature.past_self_key(layer), keys)
            self._binding.bind_input(signature.past_self_value(layer), values)
            self._binding.bind_output(signature.present_self_key(layer), keys)
            self._binding.bind_output(signature.present_self_value(layer), values)
        self._binding.feed(signature.TOTAL_LENGTH, np.array(buffer.shape[4], np.int32))

    def _bind_cross_attention(self, cross: CrossAttentionCache, sentences: slice) -> None:
        for layer, (keys, values) in enumerate(zip(cross.keys, cross.values, strict=True)):
            self._binding.bind_input(signature.cross_key(layer), keys[sentences])
            self._binding.bind_input(signature.cross_value(layer), values[sentences])
        self._binding.bind_input(signature.ENCODER_MASK, cross.mask[sentences])

    def _feed_rows(self, inputs: StepInputs) -> None:
        self._binding.feed(signature.INPUT_IDS, inputs.input_ids)
        self._binding.feed(signature.PAST_LENGTHS, inputs.past_lengths)
        self._binding.feed(signature.LANE_HEADS, inputs.lane_heads)
        self._binding.feed(signature.ROW_HEADS, inputs.row_heads)

    def _distributions(self, places: NDArray[np.int64], inputs: StepInputs) -> NDArray[np.int64]:  # noqa: ARG002, PLR6301 - for graphs that have another order
        """Where the graph has the distributions of the rows in these places."""
        return places

    def _bind_output(self, shape: tuple[int, int]) -> None:
        """Say how many candidates of each row are wanted, and where they go, (R, N)."""
        if self._output.token_ids.shape == shape:
            return
        self._output = Candidates(
            self._binding.collect(signature.CANDIDATE_IDS, shape, np.int64),
            self._binding.collect(signature.CANDIDATE_LOG_PROBS, shape, np.float32),
        )
        self._binding.feed(signature.NUM_CANDIDATES, np.array([shape[1]], np.int64))

    def _feed_edits(self, edits: Edits, places: NDArray[np.int64], inputs: StepInputs) -> None:
        positions = _NO_POSITIONS
        if len(edits.rows):
            rows = self._distributions(places.take(edits.rows), inputs)
            positions = rows * self._width + edits.token_ids  # (E,)
        self._binding.feed(signature.EDIT_POSITIONS, positions)
        self._binding.feed(signature.EDIT_SCALES, edits.scales)
        self._binding.feed(signature.EDIT_BIASES, edits.biases)
