"""Lists by slot: each sentence finds the frequent words and its own, whatever came and went before."""

from __future__ import annotations

import numpy as np
import pytest

from export.signature import CHUNK_WORDS, VOCAB_BLOCK
from service.engine.word_chunks import WordChunks
from service.engine.word_lists import WordLists

VOCAB_SIZE = 3000
FREQUENT = np.array([3, 9, 40])
NUM_FREQUENT = VOCAB_BLOCK


def create() -> WordLists:
    def fetch(words: np.ndarray) -> dict[str, np.ndarray]:
        return {"biases": words[:, None].astype(np.float32)}

    chunks = WordChunks(fetch, {"biases": "chunk_biases"}, "chunk_biases")
    return WordLists(chunks, FREQUENT, NUM_FREQUENT, VOCAB_SIZE)


def with_frequent(words: np.ndarray) -> np.ndarray:
    return np.union1d(FREQUENT, words)


def read(lists: WordLists, slot: int) -> list[int]:
    """The words that the graph would see in a slot, by their columns; checks ids on the way."""
    biases = lists.chunks.tensors["chunk_biases"][lists.slot_chunks[slot]].ravel()
    length = int(np.isfinite(biases).sum())
    own = biases[:length].astype(np.int64)
    ids = lists.ids[slot].ravel()
    assert ids[: len(FREQUENT)].tolist() == FREQUENT.tolist()
    np.testing.assert_array_equal(ids[NUM_FREQUENT : NUM_FREQUENT + length], own)
    assert np.isneginf(biases[length:]).all()
    for chunk in lists.slot_chunks[slot][: -(-length // CHUNK_WORDS)].tolist():
        assert lists.chunk_slots[chunk] == slot
    return sorted([*FREQUENT.tolist(), *own.tolist()])


def random_words(rng: np.random.Generator) -> np.ndarray:
    return with_frequent(rng.integers(0, VOCAB_SIZE, rng.integers(0, 700)))


@pytest.mark.parametrize("seed", range(4))
def test_every_sentence_sees_its_own_words(seed: int) -> None:
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
        assert lists.lay_out(slots)
        assert not lists.lay_out(slots)
        assert lists.width == NUM_FREQUENT + lists.slot_chunks.shape[1] * CHUNK_WORDS
        assert len(lists.chunk_slots) == lists.chunks.num_chunks
        for words, slot in zip(expected, slots.tolist(), strict=True):
            assert read(lists, slot) == words.tolist()


def test_places_are_those_of_the_sentence_that_asks() -> None:
    lists = create()
    lists.append(with_frequent(np.array([5, 7])), with_frequent(np.array([7, 90])))
    found = lists.places(np.array([0, 1, 1, 0, 1]), np.array([7, 7, 5, 9, 90]))
    assert found.tolist() == [NUM_FREQUENT + 1, NUM_FREQUENT, -1, 1, NUM_FREQUENT + 1]


def test_where_nobody_has_words_of_its_own_frequent_ones_are_found() -> None:
    lists = create()
    lists.append(FREQUENT)
    lists.lay_out(np.array([0]))
    assert read(lists, 0) == FREQUENT.tolist()
    assert lists.places(np.zeros(2, np.int64), np.array([40, 41])).tolist() == [2, -1]


def test_a_word_that_is_added_comes_into_its_place_and_is_added_once() -> None:
    lists = create()
    lists.append(with_frequent(np.array([4, 8])), with_frequent(np.array([4, 8])))
    lists.lay_out(np.array([0, 1]))
    lists.extend(0, np.array([5, 8, 9]))
    lists.lay_out(np.array([0, 1]))
    assert read(lists, 0) == [3, 4, 5, 8, 9, 40]
    assert read(lists, 1) == [3, 4, 8, 9, 40]
    assert lists.places(np.zeros(1, np.int64), np.array([5])).tolist() == [NUM_FREQUENT + 1]
    before = lists.chunks.num_chunks
    lists.extend(0, np.array([5, 3]))
    assert lists.chunks.num_chunks == before
    lists.lay_out(np.array([0, 1]))
    assert read(lists, 0) == [3, 4, 5, 8, 9, 40]


def test_arrays_shrink_when_long_lists_have_left() -> None:
    lists = create()
    lists.append(np.arange(2000), np.arange(100))
    lists.lay_out(np.array([0, 1]))
    wide = lists.width
    lists.keep(np.array([1]))
    lists.lay_out(np.array([0]))
    assert lists.width < wide
    assert read(lists, 0) == list(range(100))


def test_after_a_reset_there_is_room_for_others() -> None:
    lists = create()
    lists.append(np.arange(500))
    lists.lay_out(np.array([0]))
    lists.reset()
    assert len(lists) == 0
    lists.append(with_frequent(np.array([77])))
    lists.lay_out(np.array([0]))
    assert read(lists, 0) == [3, 9, 40, 77]
