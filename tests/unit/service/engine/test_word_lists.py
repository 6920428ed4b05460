"""Lists by slot: each sentence finds its own words, ascending, whatever came and went before."""

from __future__ import annotations

import numpy as np
import pytest

from export.signature import VOCAB_BLOCK
from service.engine.shortlist_columns import FILLER_COLUMN, ShortlistColumns
from service.engine.word_lists import WordLists

VOCAB_SIZE = 3000


def create() -> WordLists:
    def fetch(words: np.ndarray) -> dict[str, np.ndarray]:
        return {"biases": words.astype(np.float32)}

    return WordLists(ShortlistColumns(fetch, "biases", VOCAB_SIZE))


def read(lists: WordLists, slot: int) -> np.ndarray:
    """The words that the graph would see in a slot, by their columns; checks ids and filler on the way."""
    columns, ids = lists.columns[slot].ravel(), lists.ids[slot].ravel()
    biases = lists.union.tensors["biases"][columns]
    length = int(np.isfinite(biases).sum())
    assert (columns[length:] == FILLER_COLUMN).all()
    words = biases[:length].astype(np.int64)
    np.testing.assert_array_equal(ids[:length], words)
    return words


def random_words(rng: np.random.Generator) -> np.ndarray:
    return np.unique(rng.integers(0, VOCAB_SIZE, rng.integers(1, 700)))


@pytest.mark.parametrize("seed", range(4))
def test_every_sentence_sees_its_own_words_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists, expected = create(), []
    for _ in range(80):
        if expected and rng.random() < 0.4:
            kept = np.flatnonzero(rng.random(len(expected)) < 0.7)
            lists.keep(kept)
            expected = [expected[place] for place in kept.tolist()]
        else:
            expected.append(random_words(rng))
            lists.append(expected[-1])
        if not expected:
            continue
        slots = rng.permutation(len(expected))
        lists.lay_out(slots)
        assert lists.width % VOCAB_BLOCK == 0
        for words, slot in zip(expected, slots.tolist(), strict=True):
            np.testing.assert_array_equal(read(lists, slot), words)


def test_places_are_those_of_the_sentence_that_asks() -> None:
    lists = create()
    lists.append(np.array([3, 5, 9]))
    lists.append(np.array([5, 7]))
    found = lists.places(np.array([0, 1, 1, 0, 1]), np.array([5, 5, 3, 9, 9]))
    assert found.tolist() == [1, 0, -1, 2, -1]


def test_a_word_that_is_added_comes_into_its_place_and_is_added_once() -> None:
    lists = create()
    lists.append(np.array([3, 9]))
    lists.append(np.array([3, 9]))
    lists.lay_out(np.array([0, 1]))
    lists.extend(0, np.array([5, 9]))
    lists.lay_out(np.array([0, 1]))
    assert read(lists, 0).tolist() == [3, 5, 9]
    assert read(lists, 1).tolist() == [3, 9]
    assert lists.places(np.zeros(1, np.int64), np.array([5])).tolist() == [1]
    lists.keep(np.array([1]))
    assert lists.union.num_dead == 1, "the word that was added left with its sentence"


def test_arrays_shrink_when_long_lists_have_left() -> None:
    lists = create()
    lists.append(np.arange(2000))
    lists.append(np.arange(100))
    lists.lay_out(np.array([0, 1]))
    wide = lists.width
    lists.keep(np.array([1]))
    lists.lay_out(np.array([0]))
    assert lists.width < wide
    assert read(lists, 0).tolist() == list(range(100))
