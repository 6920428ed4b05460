"""What the engine and the search hand each other in one decoder step: arrays over rows, nothing else.

The layout rule, stated once: *rows of one sentence are adjacent, and sentences are in the order of `plan.running`*.
That is the logical order. Where a row lies in memory is the engine's own business.
Shape letters: `B` sentences, `R` rows, `N` candidates a row, `E` edits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_EDITS", "Candidates", "Edits", "RowMoves"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best next tokens of each row, best first."""

    token_ids: IntArray
    """(R, N)"""
    log_probs: FloatArray
    """(R, N), after the edits."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes of the distribution before candidates are picked: log_prob becomes log_prob * scale + bias.

    A ban is scale 1 and bias -inf. A pair (row, token) is edited once at most.
    """

    rows: IntArray
    """(E,)"""
    token_ids: IntArray
    """(E,)"""
    scales: FloatArray
    """(E,)"""
    biases: FloatArray
    """(E,)"""


NO_EDITS = Edits(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)
)


@dataclass(frozen=True, slots=True)
class RowMoves:
    """The rows of the next step in terms of the rows of this one.

    Two sentences of two rows; the first goes on with two children of its second row, the second one leaves:
    `parent_rows=[1, 1]`, `token_ids=[the two new tokens]`, `kept_sentences=[0]`, `row_counts=[2]`.
    """

    parent_rows: IntArray
    """(R',) Row that each new row continues."""
    token_ids: IntArray
    """(R',) Last token of each new row: the next input of the decoder."""
    kept_sentences: IntArray
    """(B',) Sentences that go on, ascending."""
    row_counts: IntArray
    """(B',) Rows of each of them; their sum is R'."""
