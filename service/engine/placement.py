"""Where rows and sentences lie in memory: always the places 0 to n-1, and as little moved as can be.

A parent is inherited in place by its first child; further children, and those whose place is beyond the new end, are
copied into places that became free. So no copy's source is another's destination, and copies may run in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Placement", "inherit"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where children lie, and what must be copied for it."""

    places: IntArray
    """(n,) Place of each child: a permutation of 0 to n-1."""
    copied: IntArray
    """Children that need a copy, ascending."""
    sources: IntArray
    """Place of the parent of each of them."""
    destinations: IntArray
    """Its own place."""


def inherit(parents: IntArray, num_places: int) -> Placement:
    """Give each child a place.

    Of five rows, parents [4, 1, 1] give places [0, 1, 2]: row 1 is inherited in place by the second child; the first
    child comes down from place 4 and the third is a copy of row 1.

    Args:
        parents: Place of each child's parent; may repeat. Shape (n,).
        num_places: Places in use until now.
    """
    count = len(parents)
    children = np.arange(count)
    first_child = np.full(num_places, -1, np.int64)
    first_child[parents[::-1]] = children[
        ::-1
    ]  # The last assignment wins, so the first child does.
    stays = (first_child[parents] == children) & (parents < count)
    is_free = np.ones(count, bool)
    is_free[parents[stays]] = False
    copied, destinations = (~stays).nonzero()[0], is_free.nonzero()[0]
    places = parents.copy()
    places[copied] = destinations
    return Placement(places, copied, parents[copied], destinations)
