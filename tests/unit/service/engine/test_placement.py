from __future__ import annotations

import numpy as np
import pytest

from service.engine.placement import inherit


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_children_of_different_parents_stay_where_the_parents_were() -> None:
    placement = inherit(ints(2, 0, 1), 3)
    assert placement.places.tolist() == [2, 0, 1]
    assert placement.copied.size == 0


def test_the_example_of_the_docstring() -> None:
    placement = inherit(ints(4, 1, 1), 5)
    assert placement.places.tolist() == [0, 1, 2]
    assert placement.copied.tolist() == [0, 2]
    assert placement.sources.tolist() == [4, 1]
    assert placement.destinations.tolist() == [0, 2]


def test_nobody_left_needs_no_place() -> None:
    assert inherit(ints(), 5).places.size == 0


@pytest.mark.parametrize("seed", range(50))
def test_places_are_a_permutation_and_copies_may_run_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_places = int(rng.integers(1, 12))
    parents = rng.integers(0, num_places, size=rng.integers(0, 12))
    memory = np.full(32, -1)
    memory[:num_places] = np.arange(num_places)
    placement = inherit(parents, num_places)
    assert sorted(placement.places.tolist()) == list(range(len(parents)))
    assert not set(placement.sources.tolist()) & set(placement.destinations.tolist())
    for copy in rng.permutation(len(placement.copied)):
        memory[placement.destinations[copy]] = memory[placement.sources[copy]]
    assert memory[placement.places].tolist() == parents.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_no_more_is_copied_than_children_without_a_place_of_their_parent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = rng.integers(0, 8, size=8)
    assert len(inherit(parents, 8).copied) == 8 - len(set(parents.tolist()))
