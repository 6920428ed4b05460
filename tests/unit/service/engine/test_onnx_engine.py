from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export import signature
from service.engine.base import EngineFacts, SearchKind
from service.engine.decoder_state import CacheShape
from service.engine.onnx_decoder import OnnxDecoder
from service.engine.onnx_engine import OnnxEngine
from service.errors import EngineStepError
from service.rows import NO_EDITS

SHAPE = CacheShape(num_layers=1, num_heads=2, head_size=4, start_id=9)


class FakeBinding:
    def __init__(self) -> None:
        self.inputs: dict[str, tuple[tuple[int, ...], int]] = {}
        self.outputs: dict[str, tuple[tuple[int, ...], int]] = {}

    def bind_input(
        self, name: str, device: str, device_id: int, dtype: Any, shape: Any, address: int
    ) -> None:
        self.inputs[name] = (tuple(shape), address)

    def bind_output(
        self, name: str, device: str, device_id: int, dtype: Any, shape: Any, address: int
    ) -> None:
        self.outputs[name] = (tuple(shape), address)


class FakeSession:
    """Answers zeros of the right shape, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.feeds: list[dict[str, np.ndarray]] = []
        self.binding = FakeBinding()

    def run(self, names: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        if self.error is not None:
            raise self.error
        self.feeds.append(feeds)
        batch, source = feeds[signature.INPUT_IDS].shape
        keys = np.zeros((batch, SHAPE.num_heads, SHAPE.head_size, source), np.float32)
        return [keys, keys.transpose(0, 1, 3, 2)]

    def io_binding(self) -> FakeBinding:
        return self.binding

    def run_with_iobinding(self, binding: FakeBinding) -> None:
        if self.error is not None:
            raise self.error


def create(encoder: FakeSession | None = None, decoder: FakeSession | None = None) -> OnnxEngine:
    return OnnxEngine(
        encoder=encoder or FakeSession(),
        decoder=decoder or FakeSession(),
        facts=EngineFacts(vocab_size=20, eos_id=0),
        shape=SHAPE,
        pad_id=7,
        max_encode_tokens=64,
    )


def test_sources_are_padded_and_masked() -> None:
    encoder = FakeSession()
    encoded = create(encoder).encode([(5, 0), (4, 6, 0)])
    (feeds,) = encoder.feeds
    assert feeds[signature.INPUT_IDS].tolist() == [[4, 6, 0], [5, 0, 7]]
    assert feeds[signature.SOURCE_MASK].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert encoded.num_padded_tokens == 6


def test_a_source_is_never_shorter_than_the_graph_takes() -> None:
    encoder = FakeSession()
    create(encoder).encode([(0,)])
    assert encoder.feeds[0][signature.SOURCE_MASK].tolist() == [[1, 0]]


def test_caches_are_updated_in_place() -> None:
    decoder = FakeSession()
    engine = create(decoder=decoder)
    rows = engine.create_decoder()
    rows.admit(engine.encode([(5, 0), (4, 6, 0)]))
    rows.decode(4, NO_EDITS)
    inputs, outputs = decoder.binding.inputs, decoder.binding.outputs
    for past, present in (
        (signature.past_self_key(0), signature.present_self_key(0)),
        (signature.past_self_value(0), signature.present_self_value(0)),
    ):
        assert inputs[past] == outputs[present]
        assert inputs[past][0] == (2, SHAPE.num_heads, 32, SHAPE.head_size)
    assert outputs[signature.CANDIDATE_IDS][0] == (2, 4)
    assert inputs[signature.EDIT_POSITIONS][0] == (0,)
    expected = {spec.name for spec in signature.decoder_inputs(1, 2, 4)}
    assert set(inputs) == expected


def test_sentences_that_never_have_a_second_row_have_one_lane() -> None:
    decoder = FakeSession()
    engine = create(decoder=decoder)
    for is_greedy, num_lanes in ((False, signature.MIN_LANES), (True, 1)):
        rows = engine.create_decoder()
        rows.admit(engine.encode([(5, 0), (4, 6, 0)], [SearchKind(is_greedy=is_greedy)] * 2))
        rows.decode(2, NO_EDITS)
        shape = decoder.binding.inputs[signature.LANE_HEADS][0]
        assert shape == (2, SHAPE.num_heads, num_lanes)


@pytest.mark.parametrize("error", [ort_errors.Fail, ort_errors.RuntimeException, RuntimeError])
def test_failures_of_the_runtime_are_failures_of_a_step(error: type[Exception]) -> None:
    with pytest.raises(EngineStepError, match="encoder"):
        create(encoder=FakeSession(error("no"))).encode([(5, 0)])
    engine = create(decoder=FakeSession(error("no")))
    rows = engine.create_decoder()
    rows.admit(engine.encode([(5, 0)]))
    with pytest.raises(EngineStepError, match="decoder") as caught:
        rows.decode(4, NO_EDITS)
    assert isinstance(caught.value.__cause__, error)
    rows.reset()
    assert (rows.num_rows, rows.live_bytes) == (0, 0)


def test_memory_held_is_at_most_what_was_foretold() -> None:
    engine = create()
    rows = engine.create_decoder()
    sources = [(5,) * length for length in (3, 30, 12, 7, 7)]
    rows.admit(engine.encode(sources))
    for _ in range(40):
        rows.decode(2, NO_EDITS)
    assert rows.reserved_bytes <= engine.cache_bytes(len(sources), 40, len(sources), 30)
    assert rows.live_bytes <= rows.reserved_bytes


def test_memory_that_is_given_back_is_not_held_by_what_was_bound() -> None:
    engine = create()
    rows = OnnxDecoder(engine.decoder_session, SHAPE, engine.facts.vocab_size)
    rows.admit(engine.encode([(5, 0)]))
    rows.decode(2, NO_EDITS)
    cache = weakref.ref(rows.state.self_attention.buffer)
    rows.reset()
    rows.state.self_attention.buffer = np.empty((1, 2, 0, 2, 0, 4), np.float32)
    assert cache() is None
