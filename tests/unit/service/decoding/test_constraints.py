from __future__ import annotations

import numpy as np

from service.decoding.constraints import ban_eos, join_edits
from service.rows import NO_EDITS


def test_banning_eos_in_no_rows_edits_nothing() -> None:
    assert ban_eos(np.array([], np.int64), 0) is NO_EDITS


def test_a_ban_is_minus_infinity_at_eos() -> None:
    edits = ban_eos(np.array([1, 4]), 7)
    assert edits.rows.tolist() == [1, 4]
    assert edits.token_ids.tolist() == [7, 7]
    assert (np.array([-0.5, -9.0]) * edits.scales + edits.biases).tolist() == [-np.inf, -np.inf]


def test_joining_nothing_edits_nothing() -> None:
    assert join_edits([NO_EDITS, NO_EDITS]) is NO_EDITS


def test_joined_edits_keep_their_order() -> None:
    first, second = ban_eos(np.array([0]), 7), ban_eos(np.array([2, 3]), 8)
    joined = join_edits([first, NO_EDITS, second])
    assert joined.rows.tolist() == [0, 2, 3]
    assert joined.token_ids.tolist() == [7, 8, 8]
    assert joined.scales.shape == joined.biases.shape == (3,)
