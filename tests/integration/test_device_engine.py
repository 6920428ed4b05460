"""The engine whose caches stay on a device, with the CPU as the device: the same bits as the engine for CPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export import signature
from export.bundle import Bundle, Precision
from service.engine.base import Decoder
from service.engine.device_engine import DeviceEngine, load_device_engine
from service.engine.device_memory import Device, DeviceBinding
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.errors import EngineStepError
from service.rows import Edits, RowMoves
from tests.companies import random_sequences, run, shuffles

BundleMaker = Callable[[Precision], Bundle]


@pytest.fixture(scope="module", params=["float32", "int8", "int8 caches"])
def bundle(request: pytest.FixtureRequest, served_bundle: Callable[[str], Bundle]) -> Bundle:
    return served_bundle(request.param)


@pytest.fixture(scope="module")
def plain(bundle: Bundle) -> OnnxEngine:
    """The engine of CPUs, with two lanes at least for all sentences, as devices have them."""
    engine = load_onnx_engine(bundle, max_encode_tokens=64, use_shortlist=False)
    encode = engine.encode
    engine.encode = lambda sources, kinds=(): encode(sources)  # type: ignore[method-assign]
    return engine


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> DeviceEngine:
    return load_device_engine(bundle, provider="cpu", device=Device("cpu"), max_encode_tokens=64)


def test_translations_are_the_same_in_any_company(engine: DeviceEngine, plain: OnnxEngine) -> None:
    sequences = random_sequences(engine.facts.vocab_size)
    expected = run(plain, sequences)
    for order, per_step in shuffles(sequences):
        assert run(engine, order, per_step=per_step) == expected


def test_neighbours_that_are_cancelled_change_nothing(
    engine: DeviceEngine, plain: OnnxEngine
) -> None:
    sequences = random_sequences(engine.facts.vocab_size)
    dropped = frozenset(sequence.sequence_id for sequence in sequences[1::2])
    kept = [sequence.sequence_id for sequence in sequences[::2]]
    expected = run(plain, sequences)
    found = run(engine, sequences, per_step=2, drop=dropped)
    assert [found[i] for i in kept] == [expected[i] for i in kept]


@pytest.mark.parametrize("seed", range(6))
def test_candidates_are_the_same_whoever_joins_moves_or_leaves(
    engine: DeviceEngine, plain: OnnxEngine, seed: int
) -> None:
    """Rows do what no search would do: any children of any parents, several gathers between two steps."""
    rng = np.random.default_rng(seed)
    vocab_size = engine.facts.vocab_size
    decoders: list[Decoder] = [engine.create_decoder(), plain.create_decoder()]
    counts: list[int] = []
    for _ in range(60):
        sources = [
            tuple(rng.integers(2, vocab_size, size=rng.integers(1, 50)).tolist())
            for _ in range(int(rng.integers(0, 4)) if rng.random() < 0.5 else 0)
        ]
        if sources:
            decoders[0].admit(engine.encode(sources))
            decoders[1].admit(plain.encode(sources))
            counts += [1] * len(sources)
        if not counts:
            continue
        edits = random_edits(sum(counts), vocab_size, rng)
        ours, theirs = (decoder.decode(5, edits) for decoder in decoders)
        np.testing.assert_array_equal(ours.token_ids, theirs.token_ids)
        np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
        for _ in range(int(rng.integers(1, 3))):
            moves = random_moves(counts, vocab_size, rng)
            counts = moves.row_counts.tolist()
            for decoder in decoders:
                decoder.gather(moves)
        assert decoders[0].num_rows == decoders[1].num_rows == sum(counts)
        assert decoders[0].live_bytes == decoders[1].live_bytes
    for decoder in decoders:
        decoder.reset()
    assert (decoders[0].num_rows, decoders[0].live_bytes, decoders[0].longest_source) == (0, 0, 0)


def random_edits(num_rows: int, vocab_size: int, rng: np.random.Generator) -> Edits:
    """Ban a few words of a few rows."""
    rows = np.flatnonzero(rng.random(num_rows) < 0.3)
    tokens = rng.integers(0, vocab_size, size=len(rows))
    ones, bans = np.ones(len(rows), np.float32), np.full(len(rows), -np.inf, np.float32)
    return Edits(rows, tokens, ones, bans)


def random_moves(counts: list[int], vocab_size: int, rng: np.random.Generator) -> RowMoves:
    """Some sentences leave; the rows of each other continue random rows of it."""
    kept = [place for place in range(len(counts)) if rng.random() < 0.9]
    firsts = np.cumsum([0, *counts])
    new_counts = [int(rng.integers(1, 6)) for _ in kept]
    parents = [
        firsts[place] + rng.integers(0, counts[place], size=count)
        for place, count in zip(kept, new_counts, strict=True)
    ]
    rows = np.concatenate(parents) if parents else np.empty(0, np.int64)
    return RowMoves(
        rows.astype(np.int64),
        rng.integers(2, vocab_size, size=len(rows)),
        np.array(kept, np.int64),
        np.array(new_counts, np.int64),
    )


def test_caches_are_updated_in_place_in_the_memory_of_the_device(
    engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = engine.create_decoder()
    bound: dict[str, tuple[str, int]] = {}
    binding = decoder._binding  # type: ignore[attr-defined]
    for way in ("read_device", "write_device"):
        bind = getattr(binding, way)

        def note(name: str, array: object, bind: Callable[..., None] = bind) -> None:
            bound[name] = (array.block.device.kind, array.address)  # type: ignore[attr-defined]
            bind(name, array)

        monkeypatch.setattr(binding, way, note)
    decoder.admit(engine.encode([(5, 0), (4, 6, 0)]))
    decoder.decode(2, Edits(*([np.empty(0, np.int64)] * 2), *([np.empty(0, np.float32)] * 2)))
    large = [
        spec.name
        for spec in (
            *signature.decoder_inputs(2, 8, 32),
            *signature.decoder_outputs(2, 8, 32, engine.facts.vocab_size),
        )
        if "key_values" in spec.name or "present" in spec.name
    ]
    assert set(bound) == {*large, signature.ENCODER_MASK}
    for layer in range(2):
        for past, present in (
            (signature.past_self_key(layer), signature.present_self_key(layer)),
            (signature.past_self_value(layer), signature.present_self_value(layer)),
        ):
            assert bound[past] == bound[present]


def test_what_is_bound_may_be_copied_when_it_is_bound(
    engine: DeviceEngine, plain: OnnxEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU has it: what is written into an array after it was bound does not reach the graph."""
    bind, copies = DeviceBinding.bind_input, []

    def bind_a_copy(self: DeviceBinding, name: str, array: np.ndarray) -> None:
        copies.append(array.copy())
        bind(self, name, copies[-1])

    monkeypatch.setattr(DeviceBinding, "bind_input", bind_a_copy)
    sequences = random_sequences(engine.facts.vocab_size, 8)
    found = run(engine, sequences, per_step=3)
    assert copies
    monkeypatch.undo()
    assert found == run(plain, sequences)


def test_memory_held_is_at_most_what_was_foretold(engine: DeviceEngine) -> None:
    decoder = engine.create_decoder()
    rng = np.random.default_rng(0)
    sources = [(5,) * length for length in (3, 30, 12, 7, 7)]
    decoder.admit(engine.encode(sources))
    counts = [1] * len(sources)
    for _ in range(40):
        decoder.decode(2, random_edits(sum(counts), 100, rng))
        firsts = np.cumsum([0, *counts[:-1]])
        parents = np.repeat(firsts, 4)
        counts = [4] * len(sources)
        everybody = np.arange(len(sources))
        decoder.gather(RowMoves(parents, parents + 2, everybody, np.array(counts)))
        assert decoder.live_bytes <= decoder.reserved_bytes
        assert decoder.reserved_bytes <= engine.cache_bytes(20, 40, len(sources), 30)


def test_failures_of_the_runtime_are_failures_of_a_step(
    engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ort_errors.RuntimeException("no")

    decoder = engine.create_decoder()
    decoder.admit(engine.encode([(5, 0)]))
    monkeypatch.setattr("service.engine.graph_binding.GraphBinding.run", fail)
    with pytest.raises(EngineStepError, match="decoder"):
        decoder.decode(1, random_edits(1, 100, np.random.default_rng(0)))
    decoder.reset()
    assert (decoder.num_rows, decoder.live_bytes, decoder.reserved_bytes) == (0, 0, 0)
    with pytest.raises(EngineStepError):
        engine.encode([(5, 0)])


def test_sentences_of_another_engine_are_refused(engine: DeviceEngine, plain: OnnxEngine) -> None:
    with pytest.raises(TypeError):
        engine.create_decoder().admit(plain.encode([(5, 0)]))


def test_facts_are_those_of_the_bundle(engine: DeviceEngine, plain: OnnxEngine) -> None:
    assert dataclasses.asdict(engine.facts) == dataclasses.asdict(plain.facts)
    assert engine.provider == "CPUExecutionProvider"
    assert engine.shortlist is None
