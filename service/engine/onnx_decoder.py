"""Stage 6 of 10: rows in the decoder graph.

The graph updates its caches in place: past input and present output are bound to the same memory.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import signature
from service.engine.base import Encoded
from service.engine.cross_attention_cache import EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState
from service.engine.graph_binding import GraphBinding
from service.engine.sessions import RUN_ERRORS
from service.errors import EngineStepError
from service.rows import Candidates, Edits, RowMoves

__all__ = ["OnnxDecoder", "OnnxEncoded"]

AnyArray = NDArray[np.generic]

_NO_ROWS = np.empty(0, np.int64)
"""No row's whole distribution is wanted: sampling is not built yet."""


@dataclass(frozen=True, slots=True)
class OnnxEncoded:
    """Sentences that went through the encoder, in batches of similar length."""

    batches: list[EncodedBatch]
    num_padded_tokens: int
    word_lists: list[NDArray[np.int64] | None]
    """Words of each sentence's shortlist, ascending; None for all words."""


class OnnxDecoder:
    """Rows of one worker that all run in one graph."""

    def __init__(self, session: ort.InferenceSession, shape: CacheShape) -> None:
        self._num_layers = shape.num_layers
        self._binding = GraphBinding(session)
        self._bound_shapes: tuple[object, ...] = ()
        self._bound_arrays: tuple[AnyArray, ...] = ()
        self.state = DecoderState(shape)

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
        self._binding.feed(signature.INPUT_IDS, inputs.input_ids)
        self._binding.feed(signature.PAST_LENGTHS, inputs.past_lengths)
        self._binding.feed(signature.LANE_ROWS, inputs.lane_rows)
        self._binding.feed(signature.ROW_LANES, inputs.row_lanes)
        self._binding.feed(signature.NUM_CANDIDATES, np.array([num_candidates], np.int64))
        self._binding.feed(signature.LOG_PROB_ROWS, _NO_ROWS)
        self._feed_edits(edits, places)
        shape = (len(places), num_candidates)
        token_ids = self._binding.collect(signature.CANDIDATE_IDS, shape, np.int64)
        log_probs = self._binding.collect(signature.CANDIDATE_LOG_PROBS, shape, np.float32)
        try:
            self._binding.run()
        except RUN_ERRORS as error:
            raise EngineStepError("The decoder failed.") from error
        self.state.note_step()
        return Candidates(token_ids[places], log_probs[places])

    def gather(self, moves: RowMoves) -> None:
        self.state.gather(moves)
        if not self.state.num_rows:
            self._forget_caches()

    def reset(self) -> None:
        self.state.reset()
        self._forget_caches()

    def _forget_caches(self) -> None:
        """Hold no caches that the state may have given back; the next step binds what is there then."""
        self._bound_shapes, self._bound_arrays = (), ()

    def _bind_caches(self) -> None:
        """Bind the caches again when they have moved, or the number of rows or sentences has changed."""
        state = self.state
        buffer, cross = state.self_attention.buffer, state.cross_attention
        shapes = (buffer.shape, state.num_rows, cross.keys.shape, state.num_sentences)
        arrays = (buffer, cross.keys)
        if shapes == self._bound_shapes and all(map(operator.is_, arrays, self._bound_arrays)):
            return
        self._bound_shapes, self._bound_arrays = shapes, arrays
        rows, sentences = slice(state.num_rows), slice(state.num_sentences)
        for layer in range(self._num_layers):
            keys, values = buffer[layer, 0, rows], buffer[layer, 1, rows]
            self._binding.bind_input(signature.past_self_key(layer), keys)
            self._binding.bind_input(signature.past_self_value(layer), values)
            self._binding.bind_output(signature.present_self_key(layer), keys)
            self._binding.bind_output(signature.present_self_value(layer), values)
            self._binding.bind_input(signature.cross_key(layer), cross.keys[layer, sentences])
            self._binding.bind_input(signature.cross_value(layer), cross.values[layer, sentences])
        self._binding.feed(signature.TOTAL_LENGTH, np.array(buffer.shape[4], np.int32))
        self._mask = cross.mask[sentences]
        self._binding.bind_input(signature.ENCODER_MASK, self._mask)

    def _feed_edits(self, edits: Edits, places: NDArray[np.int64]) -> None:
        positions = np.empty((len(edits.rows), 2), np.int64)  # (E, 2)
        positions[:, 0] = places[edits.rows]
        positions[:, 1] = edits.token_ids
        self._binding.feed(signature.EDIT_POSITIONS, positions)
        self._binding.feed(signature.EDIT_SCALES, edits.scales)
        self._binding.feed(signature.EDIT_BIASES, edits.biases)
