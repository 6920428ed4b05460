"""From pairs of a text that everybody can read to lists."""

from __future__ import annotations

import numpy as np
import pytest

from export import shortlist_builder
from export.alignment_counts import AlignmentCounts, TokenPairs
from export.shortlist import Shortlist, shortlist_faults
from export.shortlist_builder import build_shortlist
from model.tokenizer import Tokenizer
from tests.tiny_models import make_tokenizer

SENTENCES = [
    ("the cat", "o gato"),
    ("the red cat", "o gato vermelho"),
    ("the rain", "a chuva"),
    ("the red mat", "o tapete vermelho"),
    ("the mat", "o tapete"),
    ("the budget", "o orçamento"),
    ("4567", "4567"),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


def build(
    tokenizer: Tokenizer, num_frequent: int = 4, num_best: int = 6, least_count: float = 0.3
) -> Shortlist:
    pairs = TokenPairs.from_lists(
        tokenizer.encode_source_batch([source for source, _ in SENTENCES] * 20),
        tokenizer.encode_target_batch([target for _, target in SENTENCES] * 20),
    )
    return build_shortlist(
        pairs, tokenizer, num_frequent=num_frequent, num_best=num_best, least_count=least_count
    )


def test_a_translation_is_in_the_list_of_its_source(tokenizer: Tokenizer) -> None:
    shortlist = build(tokenizer)
    for source, target in SENTENCES:
        words = shortlist.words_for(tokenizer.encode_source(source))
        assert set(tokenizer.encode_target(target)) <= set(words.tolist())


def test_the_shortlist_fits_its_vocabulary_and_ends_sentences(tokenizer: Tokenizer) -> None:
    shortlist = build(tokenizer)
    faults = shortlist_faults(
        shortlist,
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        eos_id=tokenizer.eos_id,
    )
    assert list(faults) == []
    assert shortlist.frequent[0] == tokenizer.eos_id
    assert shortlist.targets.dtype == np.uint16


def test_no_word_has_more_than_the_best_and_none_of_the_frequent(tokenizer: Tokenizer) -> None:
    for num_best in (1, 3):
        shortlist = build(tokenizer, num_best=num_best)
        assert np.diff(shortlist.offsets.astype(np.int64)).max() == num_best
        assert not np.isin(shortlist.targets, shortlist.frequent).any()


def test_what_was_hardly_ever_aligned_is_in_no_list(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, often, seldom = 40, 50, 60

    def counted(*_: object) -> AlignmentCounts:
        keys = np.array([source, source]) * tokenizer.target_vocab_size + (often, seldom)
        return AlignmentCounts(keys, np.array([0.31, 0.29]), tokenizer.target_vocab_size)

    monkeypatch.setattr(shortlist_builder, "count_alignments", counted)
    listed = set(build(tokenizer, num_frequent=1).words_for([source]).tolist())
    assert often in listed
    assert seldom not in listed
    more = build(tokenizer, num_frequent=1, least_count=0.0).words_for([source])
    assert {often, seldom} <= set(more.tolist())


def test_what_is_spelled_the_same_is_first(tokenizer: Tokenizer) -> None:
    shortlist = build(tokenizer, num_best=1)
    special = {tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id}
    for word in range(tokenizer.source_vocab_size):
        own = shortlist.targets[shortlist.offsets[word] : shortlist.offsets[word + 1]]
        assert own.tolist() == [word] or word in {*special, *shortlist.frequent.tolist()}


def test_what_no_translation_may_hold_is_in_no_list(tokenizer: Tokenizer) -> None:
    shortlist = build(tokenizer)
    never = [tokenizer.unk_id, tokenizer.pad_id, tokenizer.bos_id]
    assert not np.isin(shortlist.frequent, never).any()
    assert not np.isin(shortlist.targets, never).any()
