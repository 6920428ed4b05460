"""With a shortlist too a sentence gives the same tokens and scores alone and in any company, listed or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from export.bundle import Bundle, Precision
from export.shortlist import load_shortlist
from service.engine.base import Decoder
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.request import Hypothesis, Sequence
from service.rows import NO_EDITS, Edits, RowMoves
from tests.companies import random_sequences, run, shuffles
from tests.tiny_bundles import make_shortlist

BundleMaker = Callable[[Precision], Bundle]


@pytest.fixture(scope="module", params=["float32", "int8"])
def precision(request: pytest.FixtureRequest) -> Precision:
    return request.param


@pytest.fixture(scope="module")
def engine(precision: Precision, shortlist_bundle: BundleMaker) -> OnnxEngine:
    return load_onnx_engine(shortlist_bundle(precision), max_encode_tokens=64)


@pytest.fixture(scope="module")
def int8_caches_engine(served_bundle: Callable[[str], Bundle]) -> OnnxEngine:
    return load_onnx_engine(served_bundle("int8 caches"), max_encode_tokens=64)


def some_without_lists(sequences: list[Sequence]) -> list[Sequence]:
    """Let every fourth sentence ask for all words."""
    return [
        dataclasses.replace(
            sequence,
            options=dataclasses.replace(sequence.options, full_vocabulary=index % 4 == 3),
        )
        for index, sequence in enumerate(sequences)
    ]


def translate_alone(
    engine: OnnxEngine, sequences: list[Sequence]
) -> dict[int, tuple[Hypothesis, ...]]:
    return {s.sequence_id: run(engine, [s])[s.sequence_id] for s in sequences}


def test_a_sentence_is_the_same_alone_and_beside_any_lists(engine: OnnxEngine) -> None:
    check_independence(engine)


def test_so_it_is_with_caches_of_int8(int8_caches_engine: OnnxEngine) -> None:
    check_independence(int8_caches_engine)


def check_independence(engine: OnnxEngine) -> None:
    sequences = some_without_lists(random_sequences(engine.facts.vocab_size))
    assert engine.shortlist is not None
    listed = [
        engine.shortlist.words_for(s.source_ids) is not None and not s.options.full_vocabulary
        for s in sequences
    ]
    assert len(sequences) / 4 < sum(listed) < len(sequences), "both kinds must meet"
    alone = translate_alone(engine, sequences)
    for order, per_step in shuffles(sequences):
        assert run(engine, order, per_step=per_step) == alone
    dropped = frozenset(sequence.sequence_id for sequence in sequences[1::3])
    found = run(engine, sequences, per_step=2, drop=dropped)
    kept = alone.keys() - dropped
    assert {i: found[i] for i in kept} == {i: alone[i] for i in kept}


def test_a_sentence_says_only_what_is_in_its_list(engine: OnnxEngine) -> None:
    sequences = [s for s in random_sequences(engine.facts.vocab_size) if len(s.source_ids) < 20]
    found = run(engine, sequences)
    assert engine.shortlist is not None
    for sequence in sequences:
        words = engine.shortlist.words_for(sequence.source_ids)
        assert words is not None
        for hypothesis in found[sequence.sequence_id]:
            assert set(hypothesis.token_ids) <= set(words.tolist())


def test_who_asks_for_all_words_gets_what_a_server_without_shortlist_gives(
    engine: OnnxEngine, precision: Precision, shortlist_bundle: BundleMaker
) -> None:
    plain = load_onnx_engine(shortlist_bundle(precision), use_shortlist=False)
    sequences = random_sequences(engine.facts.vocab_size)
    all_words = [
        dataclasses.replace(s, options=dataclasses.replace(s.options, full_vocabulary=True))
        for s in sequences
    ]
    expected = run(plain, sequences)
    assert run(engine, all_words) == expected
    assert run(engine, sequences) != expected, "the shortlist must make a difference here"


def test_a_bundle_without_a_shortlist_is_served_as_before(
    precision: Precision, shortlist_bundle: BundleMaker, random_bundle: BundleMaker
) -> None:
    sequences = random_sequences(320, count=8)
    plain = load_onnx_engine(random_bundle(precision))
    assert plain.shortlist is None
    without = load_onnx_engine(shortlist_bundle(precision), use_shortlist=False)
    assert run(plain, sequences) == run(without, sequences)


def start(engine: OnnxEngine, sources: list[tuple[int, ...]]) -> Decoder:
    decoder = engine.create_decoder()
    decoder.admit(engine.encode(sources))
    return decoder


SOURCES = [(9, 30, 2), (50, 51, 52, 53, 2), (80, 2)]


def edits(*entries: tuple[int, int, float, float]) -> Edits:
    rows, words, scales, biases = (np.array(column) for column in zip(*entries, strict=True))
    return Edits(rows, words, scales.astype(np.float32), biases.astype(np.float32))


def test_forbidden_words_stay_away_and_wanted_words_come_though_no_list_has_them(
    engine: OnnxEngine,
) -> None:
    assert engine.shortlist is not None
    lists = [engine.shortlist.words_for(source) for source in SOURCES]
    outside = [np.setdiff1d(np.arange(5, 320), words) for words in lists]
    before = start(engine, SOURCES).decode(8, NO_EDITS)
    decoder = start(engine, SOURCES)
    banned, unheard, wanted = int(before.token_ids[0, 0]), int(outside[1][0]), int(outside[2][7])
    after = decoder.decode(
        8, edits((0, banned, 1, -np.inf), (1, unheard, 1, -np.inf), (2, wanted, 1, 1000.0))
    )
    assert after.token_ids[0, :7].tolist() == before.token_ids[0, 1:].tolist()
    assert after.token_ids[1].tobytes() == before.token_ids[1].tobytes()
    assert after.log_probs[1].tobytes() == before.log_probs[1].tobytes()
    assert after.token_ids[2, 0] == wanted
    alone = start(engine, SOURCES[2:]).decode(8, edits((0, wanted, 1, 1000.0)))
    assert after.log_probs[2].tobytes() == alone.log_probs[0].tobytes()
    decoder.gather(
        RowMoves(
            np.array([0, 2]), np.array([banned, wanted]), np.array([0, 2]), np.ones(2, np.int64)
        )
    )
    again = decoder.decode(engine.facts.vocab_size, NO_EDITS)
    said = again.token_ids[1][np.isfinite(again.log_probs[1])]
    assert set(said.tolist()) == {*lists[2].tolist(), wanted}, "a word that came stays"


def test_more_candidates_than_a_list_has_words_are_filled_up_with_impossible_ones(
    engine: OnnxEngine,
) -> None:
    assert engine.shortlist is not None
    found = start(engine, SOURCES).decode(engine.facts.vocab_size, NO_EDITS)
    assert found.token_ids.shape == (3, engine.facts.vocab_size)
    for source, ids, log_probs in zip(SOURCES, found.token_ids, found.log_probs, strict=True):
        words = engine.shortlist.words_for(source)
        possible = np.isfinite(log_probs)
        assert sorted(ids[possible].tolist()) == words.tolist()
        assert possible[: len(words)].all()
        assert not possible[len(words) :].any()


def test_the_file_is_read_as_it_was_written(shortlist_bundle: BundleMaker) -> None:
    bundle = shortlist_bundle("int8")
    assert bundle.shortlist_path is not None
    found, written = load_shortlist(bundle.shortlist_path), make_shortlist()
    for name in ("frequent", "offsets", "targets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(written, name))
    assert set(bundle.manifest.files) >= {
        "shortlist.npz",
        "decoder.shortlist.onnx",
        "columns.onnx",
    }
