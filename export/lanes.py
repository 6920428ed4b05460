"""Where the rows of a sentence stand in cross-attention, where they share keys and values.

The queries of one sentence become one block of J lanes. Rows and lanes are moved head by head, so that nothing has to
be transposed on the way: the graph reads places of heads, which are made of places of rows here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["place_heads"]

IntArray = NDArray[np.int64]


def place_heads(
    lane_rows: IntArray, row_lanes: IntArray, num_heads: int
) -> tuple[IntArray, IntArray]:
    """Turn places of rows into places of heads.

    With rows [a0, b0, b1] of sentences a and b, and two lanes, `lane_rows` is [[0, 0], [1, 2]] (a's second lane is
    filled with any row) and `row_lanes` is [0, 2, 3]. With two heads that gives [[[0, 0], [1, 1]], [[2, 4], [3, 5]]]
    and [[0, 2], [4, 6], [5, 7]].

    Args:
        lane_rows: Row in each lane of each sentence. Shape (B, J).
        row_lanes: Lane of each row, sentence * J + lane. Shape (R,).
        num_heads: H.

    Returns:
        `lane_heads`, (B, H, J): head in each lane, row * H + head. `row_heads`, (R, H): where each head of a row
        stands, (sentence * H + head) * J + lane.
    """
    heads = np.arange(num_heads)
    num_lanes = lane_rows.shape[1]
    sentences, lanes = np.divmod(row_lanes, num_lanes)
    lane_heads = lane_rows[:, None, :] * num_heads + heads[:, None]
    row_heads = (sentences[:, None] * num_heads + heads) * num_lanes + lanes[:, None]
    return lane_heads, row_heads
