"""Translations of the served engine against the reference decoding in torch, on the same weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from export.bundle import Bundle, Precision
from export.exporter import suppressed_ids
from model.checkpoint import load_model
from model.generate import SearchOptions, beam_search, score
from model.transformer import Transformer
from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.request import FinishReason, Hypothesis, Sequence
from tests.builders import make_sequence


@pytest.fixture(scope="module")
def bundle(random_bundle: Callable[[Precision], Bundle]) -> Bundle:
    return random_bundle("float32")


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> OnnxEngine:
    return load_onnx_engine(bundle)


@pytest.fixture(scope="module")
def transformer(bundle: Bundle) -> Transformer:
    return load_model(bundle.directory.parent / "checkpoint").eval()


@pytest.fixture(scope="module")
def suppressed(bundle: Bundle) -> tuple[int, ...]:
    """The tokens that the graph leaves out of its distribution."""
    suppressed = tuple(suppressed_ids(bundle.manifest.special_tokens))
    assert suppressed
    return suppressed


def translate(engine: OnnxEngine, sequences: list[Sequence]) -> list[tuple[Hypothesis, ...]]:
    driver = Driver(model="m", engine=engine, config=SchedulerConfig())
    for sequence in sequences:
        driver.add(sequence)
    found: dict[int, tuple[Hypothesis, ...]] = {}
    while driver.seconds_until_step() is not None:
        for departure in driver.step().departures:
            found[departure.result.sequence_id] = departure.result.hypotheses
    return [found[sequence.sequence_id] for sequence in sequences]


def random_sequences(vocab_size: int) -> list[Sequence]:
    rng = np.random.default_rng(3)
    return [
        make_sequence(
            (*rng.integers(2, vocab_size, size=rng.integers(1, 25)).tolist(), 0),
            beam_size=beam_size,
            num_hypotheses=min(2, beam_size),
            length_penalty=alpha,
            min_target_tokens=least,
            max_length=18,
        )
        for beam_size in (1, 2, 4, 6)
        for alpha in (0.0, 1.0)
        for least in (0, 7)
    ]


def reference(
    transformer: Transformer, sequence: Sequence, suppressed: tuple[int, ...]
) -> list[tuple]:
    options = SearchOptions(
        beam_size=sequence.options.beam_size,
        length_penalty=sequence.options.length_penalty,
        num_hypotheses=sequence.options.num_hypotheses,
        min_target_tokens=sequence.options.min_target_tokens,
        max_target_tokens=sequence.max_length,
        target_length_ratio=1000.0,
        suppressed_ids=suppressed,
    )
    found = beam_search(transformer, list(sequence.source_ids), options)
    return [(item.token_ids, item.truncated, item.score) for item in found]


def test_served_beam_search_equals_the_reference(
    engine: OnnxEngine, transformer: Transformer, suppressed: tuple[int, ...]
) -> None:
    sequences = random_sequences(engine.facts.vocab_size)
    for sequence, served in zip(sequences, translate(engine, sequences), strict=True):
        expected = reference(transformer, sequence, suppressed)
        assert [
            (hypothesis.token_ids, hypothesis.finish_reason is FinishReason.LENGTH)
            for hypothesis in served
        ] == [item[:2] for item in expected]
        np.testing.assert_allclose(
            [hypothesis.score for hypothesis in served],
            [item[2] for item in expected],
            atol=1e-4,
        )


def test_reported_scores_equal_those_computed_again_without_a_cache(
    engine: OnnxEngine, transformer: Transformer, suppressed: tuple[int, ...]
) -> None:
    eos_id = engine.facts.eos_id
    sequences = random_sequences(engine.facts.vocab_size)
    for sequence, served in zip(sequences, translate(engine, sequences), strict=True):
        for hypothesis in served:
            said = list(hypothesis.token_ids)
            if hypothesis.finish_reason is FinishReason.STOP:
                said.append(eos_id)
            log_prob = sum(score(transformer, list(sequence.source_ids), said, suppressed))
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
            alpha = sequence.options.length_penalty
            assert hypothesis.score == pytest.approx(hypothesis.log_prob / len(said) ** alpha)


def test_the_cache_outgrows_its_first_buckets_without_a_trace(engine: OnnxEngine) -> None:
    """A sentence of 100 tokens beside short ones that come and go, and alone."""
    rng = np.random.default_rng(5)
    vocab_size = engine.facts.vocab_size
    long = make_sequence((5, 6, 7, 0), beam_size=4, max_length=100, min_target_tokens=100)
    short = [
        make_sequence(
            (*rng.integers(2, vocab_size, size=12).tolist(), 0), beam_size=4, max_length=10
        )
        for _ in range(40)
    ]
    together = translate(engine, [long, *short])[0]
    assert together == translate(engine, [long])[0]
    assert len(together[0].token_ids) >= 99
