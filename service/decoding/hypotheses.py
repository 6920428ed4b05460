"""Stage 7 of 10, part 3: the tokens of all rows, as back-pointers.

One entry a step holds, for each row, its parent in the entry before and its last token. A row's tokens are read by
walking back, which happens only for the answers that are returned. Nothing is copied when beams cross.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BackPointers"]

IntArray = NDArray[np.int64]

_ROOT = -1
_TRIM_EVERY = 64


@dataclass(slots=True)
class _Entry:
    parents: IntArray
    """(R,) Row in the entry before, or -1 for a row before its first token."""
    tokens: IntArray
    """(R,)"""


class BackPointers:
    """What each row said, over the steps.

    Two rows that share their first token a and then say b and c:

        entry 0: parents [-1]    tokens [-]        the sentence joins
        entry 1: parents [0]     tokens [a]
        entry 2: parents [0, 0]  tokens [b, c]     tokens(2, row=1) == (a, c)

    The last entry describes the present rows, and only the last one ever changes.
    """

    def __init__(self) -> None:
        self._entries = [_Entry(np.empty(0, np.int64), np.empty(0, np.int64))]
        self._first = 0

    @property
    def step(self) -> int:
        """Number of the last entry."""
        return self._first + len(self._entries) - 1

    @property
    def num_entries(self) -> int:
        """Entries that are remembered."""
        return len(self._entries)

    def last_tokens(self) -> IntArray:
        """The last token of each present row, (R,); meaningless for a row before its first token."""
        return self._entries[-1].tokens

    def add_roots(self, count: int) -> None:
        """Append rows before their first token."""
        last = self._entries[-1]
        roots = np.full(count, _ROOT, np.int64)
        last.parents = np.concatenate([last.parents, roots])
        last.tokens = np.concatenate([last.tokens, roots])

    def keep(self, rows: IntArray) -> None:
        """Forget all present rows but these."""
        last = self._entries[-1]
        last.parents = last.parents[rows]
        last.tokens = last.tokens[rows]

    def extend(self, parents: IntArray, tokens: IntArray) -> None:
        """Begin the next entry."""
        self._entries.append(_Entry(parents, tokens))

    def tokens(self, step: int, row: int) -> tuple[int, ...]:
        """Tokens of a row of the entry `step`, oldest first."""
        found: list[int] = []
        index = step - self._first
        while True:
            entry = self._entries[index]
            parent = int(entry.parents[row])
            if parent == _ROOT:
                found.reverse()
                return tuple(found)
            found.append(int(entry.tokens[row]))
            row = parent
            index -= 1

    def trim(self, oldest_step: int) -> None:
        """Forget the entries before `oldest_step`, where the oldest present sentence joined."""
        count = oldest_step - self._first
        if count >= _TRIM_EVERY:
            del self._entries[:count]
            self._first = oldest_step
