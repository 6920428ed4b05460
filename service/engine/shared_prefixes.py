"""Stage 6 of 10: how much of their past the rows of a sentence share, so that less of a cache is copied.

A child that is copied into the place of a sibling finds there what both inherited from their last common ancestor; only
what came later is copied. Beams part late, so that is most of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["SharedPrefixes"]

IntArray = NDArray[np.int64]


class SharedPrefixes:
    """Cached positions that two rows of a sentence have in common.

    Three rows whose hypotheses are (a b c), (a b d) and (e f g):

        lengths = [[-, 2, 0],
                   [2, -, 0],
                   [0, 0, -]]        row x lane of the other row; the diagonal means nothing
    """

    def __init__(self) -> None:
        self._lengths = np.zeros((0, 1), np.int64)
        self._row_counts: IntArray | None = None
        self._mates = np.empty((0, 1), np.int64)
        """(R, K) Rows of each row's sentence, as long as `_row_counts` are the same; beyond the last one any row."""

    def add(self, num_rows: int) -> None:
        """Append sentences of one row each."""
        alone = np.zeros((num_rows, self._lengths.shape[1]), np.int64)
        self._lengths = np.concatenate([self._lengths, alone])

    def of(self, rows: IntArray, other_lanes: IntArray) -> IntArray:
        """What each row shares with the row of its sentence in that lane."""
        return self._lengths[rows, other_lanes]

    def gather(
        self,
        parents: IntArray,
        parent_lanes: IntArray,
        parent_lengths: IntArray,
        row_counts: IntArray,
    ) -> None:
        """Let rows continue others.

        Args:
            parents: (R',) Row that each new row continues.
            parent_lanes: (R',) Its lane.
            parent_lengths: (R',) Cached positions of it.
            row_counts: (B',) New rows of each sentence; the very array of the last call says that it is as it was.
        """
        if row_counts is not self._row_counts:
            self._row_counts, self._mates = row_counts, _mates(row_counts)
        mates = self._mates
        shared = self._lengths[parents[:, None], parent_lanes.take(mates)]
        is_sibling = parents.take(mates) == parents[:, None]
        self._lengths = np.where(is_sibling, parent_lengths[:, None], shared)


def _mates(row_counts: IntArray) -> IntArray:
    """Row counts [2, 1] give [[0, 1], [0, 1], [2, 2]]."""
    width = max(1, int(row_counts.max(initial=0)))
    first_rows = (row_counts.cumsum() - row_counts).repeat(row_counts)  # (R',)
    mates: IntArray = np.minimum(first_rows[:, None] + np.arange(width), len(first_rows) - 1)
    return mates
