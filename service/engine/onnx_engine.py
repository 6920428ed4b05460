"""Stages 5 and 6 of 10: the encoder and decoder graphs in ONNX Runtime.

Sessions are shared by all workers: `Run` is thread-safe and frees the GIL. The decoder graph updates its caches in
place: past input and present output are bound to the same memory.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export import signature
from export.bundle import Bundle, BundleError
from service.engine.base import Encoded, EngineFacts
from service.engine.cross_attention_cache import EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState
from service.engine.encoder_batches import cut_into_batches
from service.engine.sessions import create_session, session_faults
from service.errors import EngineStepError
from service.rows import Candidates, Edits, RowMoves

__all__ = ["OnnxDecoder", "OnnxEngine", "load_onnx_engine"]

AnyArray = NDArray[np.generic]
ScalarT = TypeVar("ScalarT", bound=np.generic)

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


_NO_ROWS = np.empty(0, np.int64)
"""No row's whole distribution is wanted: sampling is not built yet."""


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
    """The rows of one worker.

    Arrays stay bound from step to step: while shapes do not change, a step writes its inputs into them.
    """

    def __init__(self, engine: OnnxEngine) -> None:
        self._session = engine.decoder_session
        self._num_layers = engine.shape.num_layers
        self._binding = self._session.io_binding()
        self._bound: dict[str, AnyArray] = {}
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
        self._feed(signature.INPUT_IDS, inputs.input_ids)
        self._feed(signature.PAST_LENGTHS, inputs.past_lengths)
        self._feed(signature.LANE_ROWS, inputs.lane_rows)
        self._feed(signature.ROW_LANES, inputs.row_lanes)
        self._feed(signature.NUM_CANDIDATES, np.array([num_candidates], np.int64))
        self._feed(signature.LOG_PROB_ROWS, _NO_ROWS)
        self._feed_edits(edits, places)
        shape = (len(places), num_candidates)
        token_ids = self._collect(signature.CANDIDATE_IDS, shape, np.int64)
        log_probs = self._collect(signature.CANDIDATE_LOG_PROBS, shape, np.float32)
        try:
            self._session.run_with_iobinding(self._binding)
        except _RUN_ERRORS as error:
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
            self._bind_input(signature.past_self_key(layer), keys)
            self._bind_input(signature.past_self_value(layer), values)
            self._bind_output(signature.present_self_key(layer), keys)
            self._bind_output(signature.present_self_value(layer), values)
            self._bind_input(signature.cross_key(layer), cross.keys[layer, sentences])
            self._bind_input(signature.cross_value(layer), cross.values[layer, sentences])
        self._feed(signature.TOTAL_LENGTH, np.array(buffer.shape[4], np.int32))
        self._mask = cross.mask[sentences]
        self._bind_input(signature.ENCODER_MASK, self._mask)

    def _feed_edits(self, edits: Edits, places: NDArray[np.int64]) -> None:
        positions = np.empty((len(edits.rows), 2), np.int64)  # (E, 2)
        positions[:, 0] = places[edits.rows]
        positions[:, 1] = edits.token_ids
        self._feed(signature.EDIT_POSITIONS, positions)
        self._feed(signature.EDIT_SCALES, edits.scales)
        self._feed(signature.EDIT_BIASES, edits.biases)

    def _feed(self, name: str, array: AnyArray) -> None:
        """Give the graph an input."""
        bound = self._bound.get(name)
        if bound is not None and bound.shape == array.shape:
            bound[...] = array
            return
        self._bound[name] = array = array.copy()
        self._bind_input(name, array)

    def _collect(self, name: str, shape: tuple[int, ...], dtype: type[ScalarT]) -> NDArray[ScalarT]:
        """Where the graph will write an output."""
        bound = self._bound.get(name)
        if bound is None or bound.shape != shape:
            self._bound[name] = bound = np.empty(shape, dtype)
            self._bind_output(name, bound)
        return cast(NDArray[ScalarT], bound)

    def _bind_input(self, name: str, array: AnyArray) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, _address(array))

    def _bind_output(self, name: str, array: AnyArray) -> None:
        self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, _address(array))


def _address(array: AnyArray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def load_onnx_engine(
    bundle: Bundle, *, provider: str = "cpu", max_encode_tokens: int = 512
) -> OnnxEngine:
    """Create the sessions of a bundle.

    Args:
        bundle: A verified bundle.
        provider: "cpu" or "cuda".
        max_encode_tokens: Padded source tokens of one run of the encoder.

    Raises:
        ConfigError: As `create_session`.
        BundleError: A graph has not the inputs and outputs that go with the manifest.
    """
    manifest = bundle.manifest
    architecture, special = manifest.architecture, manifest.special_tokens
    encoder = create_session(bundle.encoder_path, provider)
    decoder = create_session(bundle.decoder_path, provider)
    faults = _graph_faults(bundle, encoder, decoder)
    if faults:
        raise BundleError(str(bundle.directory), faults)
    return OnnxEngine(
        encoder=encoder,
        decoder=decoder,
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


def _graph_faults(
    bundle: Bundle, encoder: ort.InferenceSession, decoder: ort.InferenceSession
) -> list[str]:
    architecture = bundle.manifest.architecture
    cache = (architecture.num_decoder_layers, architecture.num_heads, architecture.head_size)
    return [
        *session_faults(
            encoder,
            bundle.encoder_path.name,
            signature.encoder_inputs(),
            signature.encoder_outputs(*cache),
        ),
        *session_faults(
            decoder,
            bundle.decoder_path.name,
            signature.decoder_inputs(*cache),
            signature.decoder_outputs(*cache, architecture.vocab_size),
        ),
    ]
