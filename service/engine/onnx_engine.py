"""Stages 5 and 6 of 10: the encoder and decoder graphs in ONNX Runtime.

Sessions are shared by all workers: `Run` is thread-safe and frees the GIL. The decoder graph updates its caches in
place: past input and present output are bound to the same memory.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export import signature
from export.bundle import Bundle
from service.engine.base import Encoded, EngineFacts
from service.engine.cross_attention_cache import EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState
from service.engine.encoder_batches import cut_into_batches
from service.engine.sessions import create_session
from service.errors import EngineStepError
from service.rows import Candidates, Edits, RowMoves

__all__ = ["OnnxDecoder", "OnnxEngine", "load_onnx_engine"]

AnyArray = NDArray[np.generic]
FloatArray = NDArray[np.float32]

_RUN_ERRORS = (
    ort_errors.EPFail,
    ort_errors.EngineError,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
"""What `Run` raises; they have no common base."""


@dataclass(frozen=True, slots=True)
class OnnxEncoded:
    """Sentences that went through the encoder, in batches of similar length."""

    batches: list[EncodedBatch]
    num_padded_tokens: int


class OnnxEngine:
    """Graphs and facts of one bundle."""

    def __init__(
        self,
        *,
        encoder: ort.InferenceSession,
        decoder: ort.InferenceSession,
        facts: EngineFacts,
        shape: CacheShape,
        pad_id: int,
        max_encode_tokens: int,
    ) -> None:
        self.decoder_session = decoder
        self.shape = shape
        self._encoder = encoder
        self._facts = facts
        self._pad_id = pad_id
        self._max_encode_tokens = max_encode_tokens
        self._encoder_outputs = [
            spec.name
            for spec in signature.encoder_outputs(
                shape.num_layers, shape.num_heads, shape.head_size
            )
        ]
        self._empty_state = DecoderState(shape)

    @property
    def facts(self) -> EngineFacts:
        return self._facts

    @property
    def provider(self) -> str:
        """The execution provider that runs the decoder, as ONNX Runtime names it."""
        return str(self.decoder_session.get_providers()[0])

    def cache_bytes(
        self, num_rows: int, target_length: int, num_sentences: int, source_length: int
    ) -> int:
        rows = self._empty_state.self_attention.bytes_for(num_rows, target_length)
        return rows + self._empty_state.cross_attention.bytes_for(num_sentences, source_length)

    def create_decoder(self) -> OnnxDecoder:
        return OnnxDecoder(self)

    def encode(self, sources: Sequence[tuple[int, ...]]) -> OnnxEncoded:
        lengths = [len(source) for source in sources]
        batches = [
            self._encode_batch(places, [sources[place] for place in places])
            for places in cut_into_batches(lengths, self._max_encode_tokens)
        ]
        padded = sum(len(batch.places) * batch.keys[0].shape[-1] for batch in batches)
        return OnnxEncoded(batches, padded)

    def _encode_batch(self, places: list[int], sources: list[tuple[int, ...]]) -> EncodedBatch:
        lengths = np.array([len(source) for source in sources], np.int64)
        longest = max(signature.MIN_SOURCE_LENGTH, int(lengths.max()))
        mask = np.arange(longest) < lengths[:, None]  # (B, S)
        input_ids = np.full(mask.shape, self._pad_id, np.int64)
        input_ids[mask] = np.concatenate([np.array(source, np.int64) for source in sources])
        feeds = {signature.INPUT_IDS: input_ids, signature.SOURCE_MASK: mask.astype(np.int64)}
        try:
            outputs = self._encoder.run(self._encoder_outputs, feeds)
        except _RUN_ERRORS as error:
            raise EngineStepError("The encoder failed.") from error
        return EncodedBatch(places, lengths, outputs[0::2], outputs[1::2])


class OnnxDecoder:
    """The rows of one worker."""

    def __init__(self, engine: OnnxEngine) -> None:
        self._session = engine.decoder_session
        self._num_layers = engine.shape.num_layers
        self._binding = self._session.io_binding()
        self._bound_shapes: tuple[object, ...] = ()
        self._bound_arrays: tuple[AnyArray, ...] = ()
        self.state = DecoderState(engine.shape)

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
        # Arrays are named until the run is over: the binding holds no references.
        positions = np.stack([places[edits.rows], edits.token_ids], axis=1)  # (E, 2)
        small = (
            (signature.INPUT_IDS, inputs.input_ids),
            (signature.PAST_LENGTHS, inputs.past_lengths),
            (signature.LANE_ROWS, inputs.lane_rows),
            (signature.ROW_LANES, inputs.row_lanes),
            (signature.NUM_CANDIDATES, np.array([num_candidates], np.int64)),
            (signature.EDIT_POSITIONS, positions),
            (signature.EDIT_SCALES, edits.scales),
            (signature.EDIT_BIASES, edits.biases),
        )
        for name, array in small:
            self._bind_input(name, array)
        token_ids = np.empty((len(places), num_candidates), np.int64)
        log_probs = np.empty((len(places), num_candidates), np.float32)
        self._bind_output(signature.CANDIDATE_IDS, token_ids)
        self._bind_output(signature.CANDIDATE_LOG_PROBS, log_probs)
        try:
            self._session.run_with_iobinding(self._binding)
        except _RUN_ERRORS as error:
            raise EngineStepError("The decoder failed.") from error
        self.state.note_step()
        return Candidates(token_ids[places], log_probs[places])

    def gather(self, moves: RowMoves) -> None:
        self.state.gather(moves)

    def reset(self) -> None:
        self.state.reset()

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
            self._bind_input(signature.past_self_key(layer), keys)
            self._bind_input(signature.past_self_value(layer), values)
            self._bind_output(signature.present_self_key(layer), keys)
            self._bind_output(signature.present_self_value(layer), values)
            self._bind_input(signature.cross_key(layer), cross.keys[layer, sentences])
            self._bind_input(signature.cross_value(layer), cross.values[layer, sentences])
        self._capacity = np.array(buffer.shape[4], np.int32)
        self._mask = cross.mask[sentences]
        self._bind_input(signature.TOTAL_LENGTH, self._capacity)
        self._bind_input(signature.ENCODER_MASK, self._mask)

    def _bind_input(self, name: str, array: AnyArray) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, _address(array))

    def _bind_output(self, name: str, array: AnyArray) -> None:
        self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, _address(array))


def _address(array: AnyArray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def load_onnx_engine(
    bundle: Bundle, *, provider: str = "cpu", max_encode_tokens: int = 1024
) -> OnnxEngine:
    """Create the sessions of a bundle.

    Args:
        bundle: A verified bundle.
        provider: "cpu" or "cuda".
        max_encode_tokens: Padded source tokens of one run of the encoder.

    Raises:
        ConfigError: The provider is not the one that runs.
        EngineDeadError: ONNX Runtime does not take the graphs.
    """
    manifest = bundle.manifest
    architecture, special = manifest.architecture, manifest.special_tokens
    return OnnxEngine(
        encoder=create_session(bundle.encoder_path, provider),
        decoder=create_session(bundle.decoder_path, provider),
        facts=EngineFacts(vocab_size=architecture.vocab_size, eos_id=special.eos_id),
        shape=CacheShape(
            num_layers=architecture.num_decoder_layers,
            num_heads=architecture.num_heads,
            head_size=architecture.head_size,
            start_id=special.pad_id if special.bos_id is None else special.bos_id,
        ),
        pad_id=special.pad_id,
        max_encode_tokens=max_encode_tokens,
    )
