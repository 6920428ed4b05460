"""Where rows and sentences lie in memory: always the places 0 to n-1, and as little moved as can be.

A parent is inherited in place by its first child; further children, and those whose place is beyond the new end, are
copied into places that became free. So no copy's source is another's destination, and copies may run in any order.
In most steps every sentence keeps its number of rows: then `exchange` does what `inherit` does, in a third of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Exchange", "Placement", "exchange", "inherit"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where children lie, and what must be copied for it."""

    places: IntArray
    """(n,) Place of each child: a permutation of 0 to n-1."""
    copied: IntArray
    """Children that need a copy."""
    sources: IntArray
    """Place of the parent of each of them."""
    destinations: IntArray
    """Its own place."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Which rows go on twice, and in whose places."""

    copied: IntArray
    """Children that need a copy, ascending."""
    childless: IntArray
    """Row whose place each of them gets, of the same sentence: it has no child."""


def exchange(parents: IntArray) -> Exchange:
    """Find a place for each further child of a row among the rows of its sentence that have none.

    Of two sentences of two rows each, parents [1, 1, 2, 3] give the second child the place of row 0.

    Args:
        parents: Row that each child continues. Both are ordered by sentence, and each sentence has as many children as
            it had rows. Shape (R,).
    """
    children = np.arange(len(parents))
    first_child = np.full(len(parents), -1, np.int64)
    first_child[parents[::-1]] = children[
        ::-1
    ]  # The last assignment wins, so the first child does.
    copied = (first_child.take(parents) != children).nonzero()[0]
    # A sentence has as many of the one as of the other, so in this order they are partners.
    return Exchange(copied, (first_child < 0).nonzero()[0] if len(copied) else copied)


def inherit(parents: IntArray, groups: IntArray) -> Placement:
    """Give each child a place.

    Of five rows, parents [4, 1, 1] give places [0, 1, 2]: row 1 is inherited in place by the second child; the first
    child comes down from place 4 and the third is a copy of row 1.

    Args:
        parents: Place of each child's parent; may repeat. Shape (n,).
        groups: Group of the row in each place until now, at least 0. A copy goes into a place that its own group
            leaves, where there is one. Shape (number of places,).
    """
    count, num_places = len(parents), len(groups)
    children = np.arange(count)
    first_child = np.full(num_places, -1, np.int64)
    first_child[parents[::-1]] = children[
        ::-1
    ]  # The last assignment wins, so the first child does.
    stays = (first_child[parents] == children) & (parents < count)
    copied = (~stays).nonzero()[0]
    places = parents.copy()
    if not len(copied):
        return Placement(places, copied, copied, copied)
    is_free = np.ones(count, bool)
    is_free[parents[stays]] = False
    holes = is_free.nonzero()[0]
    hole_groups = np.full(len(holes), -1, np.int64)
    hole_groups[holes < num_places] = groups[holes[holes < num_places]]
    destinations = holes[_pair(groups[parents[copied]], hole_groups)]
    places[copied] = destinations
    return Placement(places, copied, parents[copied], destinations)


def _pair(wanted: IntArray, offered: IntArray) -> IntArray:
    """For each wanted group, an offer of the same group while there is one, else any other; each offer once."""
    wanted_order, offered_order = wanted.argsort(kind="stable"), offered.argsort(kind="stable")
    wanted_keys = _numbered(wanted[wanted_order], len(wanted))
    offered_keys = _numbered(offered[offered_order], len(wanted))
    found = np.minimum(offered_keys.searchsorted(wanted_keys), len(offered) - 1)
    is_match = offered_keys[found] == wanted_keys
    is_left = np.ones(len(offered), bool)
    is_left[found[is_match]] = False
    found[~is_match] = is_left.nonzero()[0]
    pairs = np.empty(len(wanted), np.int64)
    pairs[wanted_order] = offered_order[found]
    return pairs


def _numbered(groups: IntArray, most: int) -> IntArray:
    """Ascending groups made distinct: the k-th of a group becomes group * most + k."""
    return groups * most + np.arange(len(groups)) - groups.searchsorted(groups)
