"""Stage 6 of 10: columns of the words that sentences have for themselves, in chunks, as the decoder graph reads them.

A chunk holds columns of one sentence. Chunks lie side by side without gaps: when a sentence leaves, the last ones move
into its places. Number 0 is the filler, a chunk of no words, for sentences that have fewer chunks than others.

With lists of 200 and 10 words the first has chunks 1 and 2, the second 3. After the first has left the second has 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.signature import CHUNK_WORDS

__all__ = ["FILLER_CHUNK", "ChunkedWords", "WordChunks"]

IntArray = NDArray[np.int64]
AnyArray = NDArray[np.generic]

FILLER_CHUNK = 0
_LEAST_CHUNKS = 16
_KEPT_WHEN_EMPTY_BYTES = 32 * 1024 * 1024


@dataclass(slots=True, eq=False)
class ChunkedWords:
    """The words of one sentence, and where their columns are."""

    words: IntArray
    """Ascending, (n,)"""
    chunks: list[int]


class WordChunks:
    """Columns of the words of several sentences.

    Attributes:
        tensors: By the names of the graph's inputs, (G_cap, .., 192). Replaced when there must be more room; written in
            place otherwise.
        num_chunks: G, those in use; the filler is one of them.
    """

    def __init__(
        self,
        fetch: Callable[[IntArray], dict[str, AnyArray]],
        names: Mapping[str, str],
        biases: str,
    ) -> None:
        """Begin without words.

        Args:
            fetch: Gives the columns of words (G, 192), (G, .., 192) by name.
            names: Those of the graph's inputs, by the names that `fetch` gives.
            biases: The one of the graph's inputs that makes logits -inf where there is no word.
        """
        self._fetch = fetch
        self._names = names
        self._biases = biases
        self.reset()

    def reset(self) -> None:
        """Forget all words."""
        self.num_chunks = 1
        self._holders: list[tuple[ChunkedWords, int] | None] = [None]
        self.tensors: dict[str, AnyArray] = {
            self._names[name]: np.zeros((_LEAST_CHUNKS, *column.shape[1:]), column.dtype)
            for name, column in self._fetch(np.zeros((1, CHUNK_WORDS), np.int64)).items()
        }
        self.tensors[self._biases][FILLER_CHUNK] = -np.inf

    @property
    def num_bytes(self) -> int:
        """Memory held for columns."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def add(self, *lists: IntArray) -> list[ChunkedWords]:
        """Fetch the columns of lists, each ascending, and lay them into chunks of their own."""
        counts = [-(-len(words) // CHUNK_WORDS) for words in lists]
        ids = np.zeros((sum(counts), CHUNK_WORDS), np.int64)
        biases = np.zeros(ids.shape, np.float32)
        items: list[ChunkedWords] = []
        first = 0
        for words, count in zip(lists, counts, strict=True):
            own = slice(first, first + count)
            ids[own].reshape(-1)[: len(words)] = words
            biases[own].reshape(-1)[len(words) :] = -np.inf
            item = ChunkedWords(words, [self.num_chunks + first + place for place in range(count)])
            self._holders += [(item, place) for place in range(count)]
            items.append(item)
            first += count
        if first:
            self._append(ids, biases)
        return items

    def remove(self, item: ChunkedWords) -> None:
        """Let the last chunks take the places of a list that is needed no more."""
        for chunk in sorted(item.chunks, reverse=True):
            self.num_chunks -= 1
            last = self._holders.pop()
            if chunk < self.num_chunks and last is not None:
                for tensor in self.tensors.values():
                    tensor[chunk] = tensor[self.num_chunks]
                holder, place = self._holders[chunk] = last
                holder.chunks[place] = chunk
        if self.num_chunks == 1 and self.num_bytes > _KEPT_WHEN_EMPTY_BYTES:
            self.reset()

    def _append(self, ids: IntArray, biases: NDArray[np.float32]) -> None:
        """Write the columns of words (n, 192) behind the others; `biases` is -inf where there is no word, else 0."""
        self._make_room(len(ids))
        new = slice(self.num_chunks, self.num_chunks + len(ids))
        for name, columns in self._fetch(ids).items():
            self.tensors[self._names[name]][new] = columns
        self.tensors[self._biases][new, 0] += biases  # type: ignore[misc]  # a mapping of any arrays
        self.num_chunks += len(ids)

    def _make_room(self, count: int) -> None:
        """Have room for so many chunks more."""
        capacity = len(self.tensors[self._biases])
        if self.num_chunks + count <= capacity:
            return
        capacity = max(2 * capacity, self.num_chunks + count)
        for name, old in self.tensors.items():
            tensor = np.empty((capacity, *old.shape[1:]), old.dtype)
            tensor[: self.num_chunks] = old[: self.num_chunks]
            self.tensors = {**self.tensors, name: tensor}
