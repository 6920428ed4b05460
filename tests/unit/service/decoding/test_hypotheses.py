from __future__ import annotations

import numpy as np

from service.decoding.hypotheses import BackPointers


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_rows_that_share_a_prefix_read_it_both() -> None:
    pointers = BackPointers()
    pointers.add_roots(1)
    pointers.extend(ints(0), ints(5))
    pointers.extend(ints(0, 0), ints(6, 7))
    assert [pointers.tokens(pointers.step, row) for row in (0, 1)] == [(5, 6), (5, 7)]


def test_a_row_before_its_first_token_is_empty() -> None:
    pointers = BackPointers()
    pointers.add_roots(2)
    assert pointers.tokens(pointers.step, 1) == ()


def test_a_sentence_that_joins_later_begins_where_it_joined() -> None:
    pointers = BackPointers()
    pointers.add_roots(1)
    pointers.extend(ints(0), ints(5))
    pointers.add_roots(1)
    pointers.extend(ints(0, 1), ints(6, 9))
    assert [pointers.tokens(pointers.step, row) for row in (0, 1)] == [(5, 6), (9,)]


def test_forgetting_rows_renumbers_the_others() -> None:
    pointers = BackPointers()
    pointers.add_roots(3)
    pointers.extend(ints(0, 1, 2), ints(5, 6, 7))
    pointers.keep(ints(0, 2))
    pointers.extend(ints(1, 0), ints(8, 9))
    assert [pointers.tokens(pointers.step, row) for row in (0, 1)] == [(7, 8), (5, 9)]


def test_trimming_forgets_only_what_is_older_than_the_oldest_sentence() -> None:
    pointers = BackPointers()
    for step in range(200):
        pointers.add_roots(1)
        pointers.extend(ints(pointers.last_tokens().size - 1), ints(step))
    joined = pointers.step
    pointers.add_roots(1)
    for token in range(100):
        row = ints(len(pointers.last_tokens()) - 1)
        pointers.extend(row, ints(token))
    pointers.trim(joined)
    assert pointers.tokens(pointers.step, 0) == tuple(range(100))
    assert pointers.num_entries == 101
