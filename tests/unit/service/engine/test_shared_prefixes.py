from __future__ import annotations

import numpy as np

from service.engine.shared_prefixes import SharedPrefixes


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_siblings_share_all_that_their_parent_had() -> None:
    shared = SharedPrefixes()
    shared.add(1)
    shared.gather(ints(0, 0), ints(0, 0), ints(1, 1), ints(2))
    assert shared.of(ints(0, 1), ints(1, 0)).tolist() == [1, 1]


def test_cousins_share_what_their_parents_shared() -> None:
    shared = SharedPrefixes()
    shared.add(1)
    shared.gather(ints(0, 0), ints(0, 0), ints(1, 1), ints(2))
    shared.gather(ints(0, 1, 1), ints(0, 1, 1), ints(2, 2, 2), ints(3))
    assert shared.of(ints(0, 0, 1), ints(1, 2, 2)).tolist() == [1, 1, 2]


def test_sentences_of_different_beams_keep_their_own() -> None:
    shared = SharedPrefixes()
    shared.add(2)
    shared.gather(ints(0, 0, 0, 1), ints(0, 0, 0, 0), ints(1, 1, 1, 1), ints(3, 1))
    shared.add(1)
    lanes = ints(2, 2, 0, 0, 0)
    shared.gather(ints(2, 2, 0, 3, 4), lanes, ints(2, 2, 2, 2, 0), ints(3, 1, 1))
    assert shared.of(ints(0, 0, 1), ints(1, 2, 2)).tolist() == [2, 1, 1]


def test_nobody_left_shares_nothing() -> None:
    shared = SharedPrefixes()
    shared.add(1)
    shared.gather(ints(), ints(), ints(), ints())
    shared.add(2)
    assert shared.of(ints(0, 1), ints(0, 0)).tolist() == [0, 0]
