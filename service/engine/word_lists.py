"""Stage 6 of 10: the list of words of each running sentence, as the decoder graph reads it.

A list is the frequent words, which are the same for all, and the sentence's own words behind them. Arrays by slot of
the sentence say which words these are, and in which chunks the columns of its own words are. A slot is written again
when another list comes to lie there, not at every step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from export.signature import CHUNK_WORDS, VOCAB_BLOCK
from service.engine.word_chunks import FILLER_CHUNK, ChunkedWords, WordChunks

__all__ = ["WordLists"]

IntArray = NDArray[np.int64]

_LEAST_SLOTS = 4
_MOST_SPARE = 1
"""Chunks that lists may be laid out for and nobody needs: to lay all out anew costs more than a few steps with it."""


class WordLists:
    """Lists in logical order, and laid out by slot.

    Args:
        chunks: Where the columns of own words are.
        frequent: The words of all lists, ascending.
        num_frequent: Places for them, F: a multiple of 64.
        vocab_size: V.

    Attributes:
        ids: The words, (B_cap, W, 64): frequent ones, then own ones.
        slot_chunks: Chunks of each sentence, (B, P); those that it does not have are the filler.
        chunk_slots: Slot of each chunk, (G,).
    """

    def __init__(
        self, chunks: WordChunks, frequent: IntArray, num_frequent: int, vocab_size: int
    ) -> None:
        self.chunks = chunks
        self._frequent = frequent
        self._num_frequent = num_frequent
        self._vocab_size = vocab_size
        self._frequent_place = np.full(vocab_size, -1, np.int64)
        self._frequent_place[frequent] = np.arange(len(frequent))
        self._lists: list[ChunkedWords] = []
        self._keys: IntArray | None = None  # sentence * V + word, ascending
        self._starts: IntArray = np.empty(0, np.int64)
        self._laid_out: IntArray | None = None
        """Slots of all lists as they stand there, until lists change."""
        self.slot_chunks: IntArray = np.empty((0, 1), np.int64)
        self.chunk_slots: IntArray = np.empty(0, np.int64)
        self._allocate(0, 1)

    def __len__(self) -> int:
        return len(self._lists)

    @property
    def width(self) -> int:
        """Places of a list, W * 64."""
        return int(self.ids.shape[1]) * VOCAB_BLOCK

    def append(self, *lists: IntArray) -> None:
        """Let sentences join, each with its words, ascending and each once."""
        own = [words[self._frequent_place[words] < 0] for words in lists]
        self._lists += self.chunks.add(*own)
        self._forget_order()

    def keep(self, sentences: IntArray) -> None:
        """Let all sentences but these leave."""
        kept = set(sentences.tolist())
        for place, left in enumerate(self._lists):
            if place not in kept:
                self.chunks.remove(left)
        self._lists = [self._lists[place] for place in sentences.tolist()]
        self._forget_order()

    def places(self, sentences: IntArray, words: IntArray) -> IntArray:
        """Give the place of each word in the list of its sentence, -1 where it is not there. Shape (n,) for (n,)."""
        frequent = self._frequent_place[words]
        if self._keys is None:
            lengths = np.array([len(item.words) for item in self._lists], np.int64)
            self._starts = lengths.cumsum() - lengths
            owners = np.arange(len(lengths)).repeat(lengths)
            self._keys = np.concatenate([item.words for item in self._lists])
            self._keys += owners * self._vocab_size
        if not len(self._keys):
            return frequent
        wanted = sentences * self._vocab_size + words
        found = np.minimum(self._keys.searchsorted(wanted), len(self._keys) - 1)
        place = self._num_frequent + found - self._starts[sentences]
        return np.where(self._keys[found] == wanted, place, frequent)

    def extend(self, sentence: int, words: IntArray) -> None:
        """Add words to the list of a sentence; those that are there already do no harm."""
        item = self._lists[sentence]
        added = np.setdiff1d(words[self._frequent_place[words] < 0], item.words)
        if not len(added):
            return
        self.chunks.remove(item)
        (self._lists[sentence],) = self.chunks.add(np.sort(np.concatenate([item.words, added])))
        self._forget_order()

    def lay_out(self, slots: IntArray) -> bool:
        """Write the lists into the slots of their sentences, as far as they are not there.

        The very array of the last call says that every sentence is where it was.

        Returns:
            Whether anything may have moved.
        """
        if slots is self._laid_out:
            return False
        self._laid_out = slots
        needed = max(1, *(len(item.chunks) for item in self._lists))
        if len(self._lists) > len(self.ids) or not 0 <= self._num_chunks - needed <= _MOST_SPARE:
            wanted = max(_LEAST_SLOTS, 1 << (len(self._lists) - 1).bit_length())
            self._allocate(max(wanted, len(self.ids)), needed)
        flat_ids = self.ids.reshape(len(self.ids), -1)
        self.slot_chunks = np.full((len(self._lists), self._num_chunks), FILLER_CHUNK, np.int64)
        self.chunk_slots = np.zeros(self.chunks.num_chunks, np.int64)
        for item, slot in zip(self._lists, slots.tolist(), strict=True):
            self.slot_chunks[slot, : len(item.chunks)] = item.chunks
            self.chunk_slots[item.chunks] = slot
            if self._owners[slot] is not item:
                end = self._num_frequent + len(item.words)
                flat_ids[slot, self._num_frequent : end], flat_ids[slot, end:] = item.words, 0
                self._owners[slot] = item
        return True

    def reset(self) -> None:
        """Forget all sentences and words."""
        self._lists = []
        self._forget_order()
        self.chunks.reset()
        self._allocate(len(self.ids), self._num_chunks)

    def _forget_order(self) -> None:
        self._keys = self._laid_out = None

    def _allocate(self, num_slots: int, num_chunks: int) -> None:
        self._num_chunks = num_chunks
        places = self._num_frequent + num_chunks * CHUNK_WORDS
        self.ids: IntArray = np.zeros((num_slots, places // VOCAB_BLOCK, VOCAB_BLOCK), np.int64)
        self.ids.reshape(num_slots, places)[:, : len(self._frequent)] = self._frequent
        self._owners: list[ChunkedWords | None] = [None] * num_slots
