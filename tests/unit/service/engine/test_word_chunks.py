"""Columns of own words in chunks, held against the words that they are of."""

from __future__ import annotations

import numpy as np
import pytest

from export.signature import CHUNK_WORDS
from service.engine.word_chunks import FILLER_CHUNK, ChunkedWords, WordChunks

VOCAB_SIZE = 3000
WIDTH = 3
NAMES = {"weights": "chunk_weights", "biases": "chunk_biases"}


def fetch(words: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that tell whose they are."""
    weights = np.arange(WIDTH)[:, None] * VOCAB_SIZE + words[:, None]
    return {"weights": weights.astype(np.int32), "biases": words[:, None].astype(np.float32)}


def create() -> WordChunks:
    return WordChunks(fetch, NAMES, "chunk_biases")


def assert_holds(chunks: WordChunks, item: ChunkedWords) -> None:
    """Look for the columns of the words, in their order, and for nothing behind them."""
    length = len(item.words)
    assert len(item.chunks) == -(-length // CHUNK_WORDS)
    if not length:
        return
    biases = chunks.tensors["chunk_biases"][item.chunks].ravel()
    np.testing.assert_array_equal(biases[:length], item.words)
    assert np.isneginf(biases[length:]).all()
    weights = chunks.tensors["chunk_weights"][item.chunks].transpose(1, 0, 2).reshape(WIDTH, -1)
    np.testing.assert_array_equal(weights[:, :length], fetch(item.words[None])["weights"][0])


def random_words(rng: np.random.Generator) -> np.ndarray:
    return np.unique(rng.integers(0, VOCAB_SIZE, rng.integers(0, 700)))


def test_the_filler_has_no_words() -> None:
    chunks = create()
    (item,) = chunks.add(np.arange(10))
    assert item.chunks == [1]
    assert np.isneginf(chunks.tensors["chunk_biases"][FILLER_CHUNK]).all()
    assert chunks.num_chunks == 2


def test_sentences_without_words_of_their_own_have_no_chunks() -> None:
    chunks = create()
    nobody, somebody = chunks.add(np.arange(0), np.arange(300))
    assert (nobody.chunks, somebody.chunks) == ([], [1, 2])
    assert [item.chunks for item in chunks.add(np.arange(0))] == [[]]
    chunks.remove(nobody)
    assert_holds(chunks, somebody)


def test_the_last_chunks_take_the_places_of_those_that_are_free() -> None:
    chunks = create()
    first, second, third = chunks.add(np.arange(200), np.arange(50, 60), np.arange(7, 500))
    assert (first.chunks, second.chunks, third.chunks) == ([1, 2], [3], [4, 5, 6])
    chunks.remove(first)
    assert chunks.num_chunks == 5
    assert sorted([*second.chunks, *third.chunks]) == [1, 2, 3, 4]
    for item in (second, third):
        assert_holds(chunks, item)


@pytest.mark.parametrize("seed", range(5))
def test_any_run_of_lists_that_come_and_go_keeps_every_word(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chunks = create()
    items: list[ChunkedWords] = []
    for _ in range(120):
        if items and rng.random() < 0.5:
            for place in sorted(rng.permutation(len(items))[:3].tolist(), reverse=True):
                chunks.remove(items.pop(place))
        else:
            items += chunks.add(*(random_words(rng) for _ in range(rng.integers(1, 5))))
        for item in items:
            assert_holds(chunks, item)
        assert chunks.num_chunks == 1 + sum(len(item.chunks) for item in items)
        assert np.isneginf(chunks.tensors["chunk_biases"][FILLER_CHUNK]).all()
    chunks.reset()
    assert chunks.num_chunks == 1
    (item,) = chunks.add(np.array([7]))
    assert_holds(chunks, item)


def test_memory_of_many_words_is_given_back_when_all_have_left() -> None:
    def fetch_wide(words: np.ndarray) -> dict[str, np.ndarray]:
        weights = np.zeros((len(words), 512, CHUNK_WORDS), np.int8)
        return {"weights": weights, "biases": np.zeros((len(words), 1, CHUNK_WORDS), np.float32)}

    chunks = WordChunks(fetch_wide, NAMES, "chunk_biases")
    least = chunks.num_bytes
    items = chunks.add(*[np.arange(2900)] * 30)
    assert chunks.num_bytes > 32 * 1024 * 1024
    for item in items:
        chunks.remove(item)
    assert chunks.num_bytes == least
