"""A sentence gives the same tokens and scores alone and in any company, with real graphs, fp32 and int8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from export.bundle import Bundle, load_bundle
from model.tokenizer import Tokenizer
from service.engine.base import SearchKind
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.request import FinishReason, Sequence
from service.rows import NO_EDITS, RowMoves
from tests.builders import make_sequence
from tests.companies import BEAMS, random_sequences, run, shuffles

PRETRAINED = Path(__file__).parents[2] / "model/pretrained/en-pt"

TEXTS = (
    "The committee decided on Tuesday that the budget would not be approved.",
    "Hello!",
    "Where is the station?",
    "In 1969, three people flew to the Moon; two of them walked on it for some hours.",
    "He said nothing.",
    "Rain is expected in the north on Monday and in the south on Tuesday, but not elsewhere.",
    "Yes",
    "The new library, which cost 3.5 million, opens its doors to the public next week.",
)


@pytest.fixture(scope="module", params=["float32", "int8", "int8 caches"])
def engine(request: pytest.FixtureRequest, served_bundle: Callable[[str], Bundle]) -> OnnxEngine:
    return load_onnx_engine(served_bundle(request.param), max_encode_tokens=64, use_shortlist=False)


def test_a_sentence_is_the_same_alone_and_in_any_company_in_any_order(engine: OnnxEngine) -> None:
    sequences = random_sequences(engine.facts.vocab_size)
    alone = {s.sequence_id: run(engine, [s])[s.sequence_id] for s in sequences}
    lengths = {len(hypotheses[0].token_ids) for hypotheses in alone.values()}
    assert len(lengths) > 3, "the model must not be trivial"
    for order, per_step in shuffles(sequences):
        assert run(engine, order, per_step=per_step) == alone


def test_neighbours_that_are_cancelled_change_nothing(engine: OnnxEngine) -> None:
    sequences = random_sequences(engine.facts.vocab_size)
    alone = {s.sequence_id: run(engine, [s])[s.sequence_id] for s in sequences[::2]}
    dropped = frozenset(sequence.sequence_id for sequence in sequences[1::2])
    for order, per_step in shuffles(sequences):
        found = run(engine, order, per_step=per_step, drop=dropped)
        assert {i: found[i] for i in alone} == alone


def test_beam_one_equals_greedy_beside_any_beam(engine: OnnxEngine) -> None:
    """Greedy: the best token of each step, by a beam of one and by steps of one candidate."""
    sequences = [
        make_sequence(s.source_ids, beam_size=1, max_length=20)
        for s in random_sequences(engine.facts.vocab_size, 8)
    ]
    found = run(engine, [*sequences, *random_sequences(engine.facts.vocab_size, 8)])
    for sequence in sequences:
        (hypothesis,) = found[sequence.sequence_id]
        assert hypothesis.token_ids == greedy(engine, sequence)


def greedy(engine: OnnxEngine, sequence: Sequence) -> tuple[int, ...]:
    decoder = engine.create_decoder()
    kind = SearchKind(is_greedy=sequence.options.beam_size == 1)
    decoder.admit(engine.encode([sequence.source_ids], [kind]))
    tokens: tuple[int, ...] = ()
    while len(tokens) < sequence.max_length:
        token_ids = decoder.decode(1, NO_EDITS).token_ids[0]
        if token_ids[0] == engine.facts.eos_id:
            break
        tokens = (*tokens, int(token_ids[0]))
        zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
        decoder.gather(RowMoves(zero, token_ids, zero, one))
    return tokens


def test_reported_scores_equal_those_computed_again_by_the_same_graph(engine: OnnxEngine) -> None:
    sequences = random_sequences(engine.facts.vocab_size, 8)
    found = run(engine, sequences)
    for sequence in sequences:
        for hypothesis in found[sequence.sequence_id]:
            said = list(hypothesis.token_ids)
            if hypothesis.finish_reason is FinishReason.STOP:
                said.append(engine.facts.eos_id)
            log_prob = forced_log_prob(engine, sequence, said)
            assert hypothesis.log_prob == log_prob
            alpha = sequence.options.length_penalty
            assert hypothesis.score == pytest.approx(log_prob / len(said) ** alpha, rel=1e-12)


def forced_log_prob(engine: OnnxEngine, sequence: Sequence, said: list[int]) -> float:
    """Sum of what the graph thinks of these tokens, one row alone."""
    decoder = engine.create_decoder()
    kind = SearchKind(is_greedy=sequence.options.beam_size == 1)
    decoder.admit(engine.encode([sequence.source_ids], [kind]))
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    log_prob = 0.0
    for token in said:
        candidates = decoder.decode(engine.facts.vocab_size, NO_EDITS)
        (place,) = np.flatnonzero(candidates.token_ids[0] == token)
        log_prob += float(candidates.log_probs[0, place])
        decoder.gather(RowMoves(zero, np.array([token]), zero, one))
    return log_prob


def test_the_pretrained_model_gives_the_same_answers_in_any_company() -> None:
    bundle = load_bundle(PRETRAINED)
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    engine = load_onnx_engine(bundle)
    sequences = [
        make_sequence(tuple(source), request_id=str(index), beam_size=BEAMS[index % 4])
        for index, source in enumerate(tokenizer.encode_source_batch(list(TEXTS)))
    ]
    alone = {s.sequence_id: run(engine, [s])[s.sequence_id] for s in sequences}
    for order, per_step in shuffles(sequences):
        assert run(engine, order, per_step=per_step) == alone
