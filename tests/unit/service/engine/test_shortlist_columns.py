"""The union of all lists, held against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from service.engine.shortlist_columns import FILLER_COLUMN, ShortlistColumns

VOCAB_SIZE = 2000
WIDTH = 3


def fetch(words: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that tell whose they are."""
    weights = np.arange(WIDTH)[:, None] * VOCAB_SIZE + words
    return {"weights": weights.astype(np.int32), "biases": words.astype(np.float32)}


class Counter:
    """Counts the words that are fetched."""

    def __init__(self) -> None:
        self.num_fetched = 0

    def __call__(self, words: np.ndarray) -> dict[str, np.ndarray]:
        self.num_fetched += len(words)
        return fetch(words)


def create(fetch_words: object = fetch) -> ShortlistColumns:
    return ShortlistColumns(fetch_words, "biases", VOCAB_SIZE)


def assert_holds(union: ShortlistColumns, words: np.ndarray, columns: np.ndarray) -> None:
    for name, expected in fetch(words).items():
        np.testing.assert_array_equal(union.tensors[name][..., columns], expected)
        assert union.tensors[name].flags.c_contiguous


def test_the_filler_is_never_chosen_and_is_no_word() -> None:
    union = create()
    columns = union.add(np.arange(10))
    assert FILLER_COLUMN not in columns
    assert union.tensors["biases"][FILLER_COLUMN] == -np.inf
    assert not union.tensors["weights"][:, FILLER_COLUMN].any()


def test_a_word_of_several_lists_has_one_column_and_is_fetched_once() -> None:
    counter = Counter()
    union = create(counter)
    counter.num_fetched = 0
    first = union.add(np.array([2, 5]))
    second = union.add(np.array([5, 7]))
    assert first[1] == second[0]
    assert counter.num_fetched == 3
    union.remove(first)
    assert union.num_dead == 1
    third = union.add(np.array([2, 9]))
    assert counter.num_fetched == 4, "a dead word that comes back is still there"
    assert_holds(union, np.array([2, 9]), third)


def test_dead_columns_stay_until_they_are_many() -> None:
    union = create()
    kept = union.add(np.arange(300))
    few = union.add(np.arange(300, 400))
    union.remove(few)
    assert union.compact() is None
    many = union.add(np.arange(500, 1100))
    size = union.tensors["biases"].shape[-1]
    union.remove(many)
    moved = union.compact()
    assert moved is not None
    assert (moved[few] == -1).all()
    assert_holds(union, np.arange(300), moved[kept])
    assert union.num_dead == 0
    assert union.tensors["biases"].shape[-1] < size
    assert union.tensors["biases"][FILLER_COLUMN] == -np.inf


@pytest.mark.parametrize("seed", range(5))
def test_any_run_of_lists_that_come_and_go_agrees_with_a_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    union = create()
    lists: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for number in range(120):
        if lists and rng.random() < 0.5:
            for key in rng.permutation(list(lists))[: rng.integers(1, 4)].tolist():
                union.remove(lists.pop(key)[1])
            moved = union.compact()
            if moved is not None:
                lists = {key: (words, moved[columns]) for key, (words, columns) in lists.items()}
        else:
            words = np.unique(rng.integers(0, VOCAB_SIZE, rng.integers(1, 400)))
            lists[number] = (words, union.add(words))
        for words, columns in lists.values():
            assert_holds(union, words, columns)
        alive = len({word for words, _ in lists.values() for word in words.tolist()})
        assert union.num_columns == 1 + alive + union.num_dead
        assert union.num_dead <= max(256, 0.25 * union.num_columns) + 400 * 3
    union.reset()
    assert (union.num_columns, union.num_dead) == (1, 0)
    assert_holds(union, np.array([7]), union.add(np.array([7])))
