from __future__ import annotations

import numpy as np
import pytest

from service.engine.placement import exchange, inherit


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def alike(num_places: int) -> np.ndarray:
    """Rows that are all of one group."""
    return np.zeros(num_places, np.int64)


def test_children_of_different_parents_stay_where_the_parents_were() -> None:
    placement = inherit(ints(2, 0, 1), alike(3))
    assert placement.places.tolist() == [2, 0, 1]
    assert placement.copied.size == 0


def test_the_example_of_the_docstring() -> None:
    placement = inherit(ints(4, 1, 1), alike(5))
    assert placement.places.tolist() == [0, 1, 2]
    assert placement.copied.tolist() == [0, 2]
    assert placement.sources.tolist() == [4, 1]
    assert placement.destinations.tolist() == [0, 2]


def test_nobody_left_needs_no_place() -> None:
    assert inherit(ints(), alike(5)).places.size == 0


@pytest.mark.parametrize("seed", range(50))
def test_places_are_a_permutation_and_copies_may_run_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_places = int(rng.integers(1, 12))
    parents = rng.integers(0, num_places, size=rng.integers(0, 12))
    memory = np.full(32, -1)
    memory[:num_places] = np.arange(num_places)
    placement = inherit(parents, alike(num_places))
    assert sorted(placement.places.tolist()) == list(range(len(parents)))
    assert not set(placement.sources.tolist()) & set(placement.destinations.tolist())
    for copy in rng.permutation(len(placement.copied)):
        memory[placement.destinations[copy]] = memory[placement.sources[copy]]
    assert memory[placement.places].tolist() == parents.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_no_more_is_copied_than_children_without_a_place_of_their_parent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = rng.integers(0, 8, size=8)
    assert len(inherit(parents, alike(8)).copied) == 8 - len(set(parents.tolist()))


def test_copies_go_where_their_own_group_leaves() -> None:
    # Places 0 2 4 belong to group 7, places 1 3 5 to group 8; each keeps three rows of one parent.
    placement = inherit(ints(2, 2, 2, 5, 5, 5), ints(7, 8, 7, 8, 7, 8))
    assert sorted(placement.places[:3].tolist()) == [0, 2, 4]
    assert sorted(placement.places[3:].tolist()) == [1, 3, 5]


@pytest.mark.parametrize("seed", range(20))
def test_as_many_copies_as_can_be_go_where_their_own_group_leaves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 3, size=9)
    parents = rng.integers(0, 9, size=rng.integers(1, 12))
    placement = inherit(parents, groups)
    assert sorted(placement.places.tolist()) == list(range(len(parents)))
    wanted = groups[placement.sources].tolist()
    there = [int(groups[place]) if place < 9 else -1 for place in placement.destinations.tolist()]
    at_home = sum(a == b for a, b in zip(wanted, there, strict=True))
    assert at_home == sum(min(wanted.count(group), there.count(group)) for group in range(3))


def test_children_exchange_the_places_of_their_sentence() -> None:
    found = exchange(ints(1, 1, 2, 3))
    assert found.copied.tolist() == [1]
    assert found.childless.tolist() == [0]


def test_a_mere_change_of_order_copies_nothing() -> None:
    assert exchange(ints(1, 0, 3, 2)).copied.size == 0


@pytest.mark.parametrize("seed", range(50))
def test_an_exchange_leaves_every_child_what_its_parent_had(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, size=4)
    firsts = counts.cumsum() - counts
    parents = np.concatenate(
        [first + rng.integers(0, count, count) for first, count in zip(firsts, counts, strict=True)]
    )
    sentences = np.arange(4).repeat(counts)
    found = exchange(parents)
    assert sentences[found.copied].tolist() == sentences[found.childless].tolist()
    memory, places = np.arange(len(parents)), parents.copy()
    places[found.copied] = found.childless
    for copy in rng.permutation(len(found.copied)):
        memory[found.childless[copy]] = memory[parents[found.copied[copy]]]
    assert sorted(places.tolist()) == list(range(len(parents)))
    assert memory[places].tolist() == parents.tolist()
