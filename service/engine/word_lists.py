"""Stage 6 of 10: the list of words of each running sentence, as the decoder graph reads it.

Two arrays by slot of the sentence, which say of each word in its list what it is and in which column it stands. A slot
is written again when another list comes to lie there, not at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.signature import VOCAB_BLOCK
from service.engine.shortlist_columns import FILLER_COLUMN, ShortlistColumns

__all__ = ["WordLists"]

IntArray = NDArray[np.int64]

_LEAST_SLOTS = 4
_BLOCK_STEP = 2
_SHRINK_BELOW = 0.5


@dataclass(slots=True, eq=False)
class _WordList:
    """Of one sentence."""

    words: IntArray
    """Ascending, (n,)"""
    columns: IntArray
    """(n,)"""


class WordLists:
    """Lists in logical order, and laid out by slot.

    Attributes:
        columns: Column of each word, (B_cap, W, 64), int32.
        ids: The words, (B_cap, W, 64).
    """

    def __init__(self, union: ShortlistColumns) -> None:
        self.union = union
        self._lists: list[_WordList] = []
        self._keys: IntArray | None = None  # sentence * V + word, ascending
        self._starts: IntArray = np.empty(0, np.int64)
        self._laid_out: IntArray | None = None
        """Slots of all lists as they stand there, until lists change."""
        self._allocate(0, 0)

    def __len__(self) -> int:
        return len(self._lists)

    @property
    def width(self) -> int:
        """Words in a row of the arrays, W * 64."""
        return int(self.columns.shape[1]) * VOCAB_BLOCK

    def append(self, *lists: IntArray) -> None:
        """Let sentences join, each with its words, ascending and each once."""
        self.union.provide(np.concatenate(lists))
        self._lists += [_WordList(words, self.union.add(words)) for words in lists]
        self._forget_order()

    def keep(self, sentences: IntArray) -> None:
        """Let all sentences but these leave."""
        kept = set(sentences.tolist())
        for place, left in enumerate(self._lists):
            if place not in kept:
                self.union.remove(left.columns)
        self._lists = [self._lists[place] for place in sentences.tolist()]
        self._forget_order()
        moved = self.union.compact()
        if moved is not None:
            for item in self._lists:
                item.columns = moved[item.columns]
            self._forget_slots()

    def places(self, sentences: IntArray, words: IntArray) -> IntArray:
        """Give the place of each word in the list of its sentence, -1 where it is not there. Shape (n,) for (n,)."""
        if self._keys is None:
            lengths = np.array([len(item.words) for item in self._lists], np.int64)
            self._starts = lengths.cumsum() - lengths
            owners = np.arange(len(lengths)).repeat(lengths)
            self._keys = np.concatenate([item.words for item in self._lists])
            self._keys += owners * self.union.vocab_size
        wanted = sentences * self.union.vocab_size + words
        found = np.minimum(self._keys.searchsorted(wanted), len(self._keys) - 1)
        return np.where(self._keys[found] == wanted, found - self._starts[sentences], -1)

    def extend(self, sentence: int, words: IntArray) -> None:
        """Add words to the list of a sentence; those that are there already do no harm."""
        item = self._lists[sentence]
        added = np.setdiff1d(words, item.words)
        if not len(added):
            return
        columns = np.concatenate([item.columns, self.union.add(added)])
        together = np.concatenate([item.words, added])
        order = together.argsort()
        self._lists[sentence] = _WordList(together[order], columns[order])
        self._forget_order()

    def lay_out(self, slots: IntArray) -> None:
        """Write the lists into the slots of their sentences, as far as they are not there.

        The very array of the last call says that every sentence is where it was.
        """
        if slots is self._laid_out:
            return
        self._laid_out = slots
        longest = max(len(item.words) for item in self._lists)
        blocks = -(-longest // (VOCAB_BLOCK * _BLOCK_STEP)) * _BLOCK_STEP
        num_slots, width = self.columns.shape[:2]
        if len(self._lists) > num_slots or not _SHRINK_BELOW * width <= blocks <= width:
            wanted = max(_LEAST_SLOTS, 1 << (len(self._lists) - 1).bit_length())
            self._allocate(max(wanted, num_slots), blocks)
        flat_columns = self.columns.reshape(len(self.columns), -1)
        flat_ids = self.ids.reshape(len(self.ids), -1)
        for item, slot in zip(self._lists, slots.tolist(), strict=True):
            if self._owners[slot] is item:
                continue
            length = len(item.words)
            flat_columns[slot, :length], flat_ids[slot, :length] = item.columns, item.words
            flat_columns[slot, length:], flat_ids[slot, length:] = FILLER_COLUMN, 0
            self._owners[slot] = item

    def reset(self) -> None:
        """Forget all sentences and words."""
        self._lists = []
        self._forget_order()
        self.union.reset()
        self._forget_slots()

    def _forget_order(self) -> None:
        self._keys = self._laid_out = None

    def _forget_slots(self) -> None:
        self._owners: list[_WordList | None] = [None] * len(self.columns)

    def _allocate(self, num_slots: int, blocks: int) -> None:
        self.columns = np.zeros((num_slots, blocks, VOCAB_BLOCK), np.int32)
        self.ids: IntArray = np.zeros((num_slots, blocks, VOCAB_BLOCK), np.int64)
        self._forget_slots()
