"""Stage 6 of 10: the columns of the output projection that the running sentences need, as the decoder graph reads them.

The union of all lists: a word that several sentences have in their lists has one column. Sentences come and go at every
step, columns are fetched only for words that are not there yet, and put behind the others. Words that nobody needs any
more stay until they are too many; then the others move together.

With lists [2, 5] and [5, 7] the columns are: filler, 2, 5, 7. After the first sentence has left, 2 is dead; a sentence
with the list [2, 9] finds 2 there and 9 is appended.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from export.signature import MIN_COLUMNS

__all__ = ["FILLER_COLUMN", "ShortlistColumns"]

IntArray = NDArray[np.int64]
AnyArray = NDArray[np.generic]

FILLER_COLUMN = 0
"""A column whose logit is -inf: what lists are filled up with."""

_COLUMN_STEP = MIN_COLUMNS
_MOST_DEAD = 256
_MOST_DEAD_SHARE = 0.25


class ShortlistColumns:
    """Columns of a union of words.

    Attributes:
        tensors: By the names of the graph's inputs; the last axis is the column, (.., U). Replaced when U changes, or
            when columns move; written in place otherwise.
    """

    def __init__(
        self, fetch: Callable[[IntArray], dict[str, AnyArray]], biases: str, vocab_size: int
    ) -> None:
        """Begin without words.

        Args:
            fetch: Gives the columns of words, (.., n) by name.
            biases: Name of the tensor that makes the filler's logit -inf.
            vocab_size: Words that there may be.
        """
        self.vocab_size = vocab_size
        """V."""
        self._fetch = fetch
        self._biases = biases
        self._column_of = np.full(vocab_size, -1, np.int64)
        self.reset()

    def reset(self) -> None:
        """Forget all words."""
        self._column_of.fill(-1)
        self._words: IntArray = np.full(1, -1, np.int64)  # by column; the filler is none
        self._uses: IntArray = np.ones(1, np.int64)
        self.tensors = {
            name: np.zeros((*column.shape[:-1], _COLUMN_STEP), column.dtype)
            for name, column in self._fetch(np.zeros(1, np.int64)).items()
        }
        self.tensors[self._biases][FILLER_COLUMN] = -np.inf

    @property
    def num_columns(self) -> int:
        """Columns that hold something, the filler and dead words among them."""
        return len(self._words)

    @property
    def num_dead(self) -> int:
        """Columns of words that no list has."""
        return int((self._uses == 0).sum())

    @property
    def num_bytes(self) -> int:
        """Memory held for columns."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def provide(self, words: IntArray) -> None:
        """Fetch what is missing of these words at once; lists that need them are added next."""
        missing = words[self._column_of[words] < 0]
        if len(missing):
            # Each once: `np.unique` takes thirty times as long.
            is_missing = np.zeros(self.vocab_size, bool)
            is_missing[missing] = True
            self._append(is_missing.nonzero()[0])

    def add(self, words: IntArray) -> IntArray:
        """Let a list need these words, each once, and give their columns."""
        columns = self._column_of[words]
        missing = words[columns < 0]
        if len(missing):
            columns[columns < 0] = self._append(missing)
        self._uses[columns] += 1
        return columns

    def remove(self, columns: IntArray) -> None:
        """Let a list need these columns no longer."""
        self._uses[columns] -= 1

    def compact(self) -> IntArray | None:
        """Move the columns of living words together when too many are dead.

        Returns:
            The new column of each old one, -1 for the dead; None when nothing has moved.
        """
        alive = self._uses > 0
        num_dead = len(alive) - int(alive.sum())
        if num_dead <= max(_MOST_DEAD, _MOST_DEAD_SHARE * len(alive)):
            return None
        kept = alive.nonzero()[0]
        moved = np.full(len(alive), -1, np.int64)
        moved[kept] = np.arange(len(kept))
        self._column_of[self._words[~alive]] = -1
        self._words, self._uses = self._words[kept], self._uses[kept]
        self._column_of[self._words[1:]] = np.arange(1, len(kept))
        self._resize(
            len(kept), {n: tensor.take(kept, axis=-1) for n, tensor in self.tensors.items()}
        )
        return moved

    def _append(self, words: IntArray) -> IntArray:
        first = self.num_columns
        columns = np.arange(first, first + len(words))
        self._column_of[words] = columns
        self._words = np.concatenate([self._words, words])
        self._uses = np.concatenate([self._uses, np.zeros(len(words), np.int64)])
        if len(self._words) > self.tensors[self._biases].shape[-1]:
            self._resize(len(self._words), self.tensors)
        for name, tensor in self._fetch(words).items():
            self.tensors[name][..., first : first + len(words)] = tensor
        return columns

    def _resize(self, num_columns: int, contents: dict[str, AnyArray]) -> None:
        """Make room for so many columns, and begin with these."""
        size = -(-num_columns // _COLUMN_STEP) * _COLUMN_STEP
        self.tensors = {
            name: np.concatenate(
                [old, np.zeros((*old.shape[:-1], max(0, size - old.shape[-1])), old.dtype)], axis=-1
            )
            for name, old in contents.items()
        }
