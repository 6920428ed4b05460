"""Parallel text on its way into training: read, tokenize, batch, pad.

A batch holds sentences of similar length, and its size is counted in padded tokens: rows times the longest side. What
is real and what is padding is decided by lengths alone, never by `pad_id`, because some vocabularies pad with EOS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.masks import length_mask
from model.tokenizer import Tokenizer

_TOKENIZE_AT_ONCE = 10_000

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Padded sentences and their translations, both with EOS."""

    source_ids: Tensor
    """Shape (B, S)."""

    source_mask: Tensor
    """True at real tokens. Shape (B, S)."""

    target_ids: Tensor
    """Shape (B, T)."""

    target_mask: Tensor
    """True at real tokens. Shape (B, T)."""

    num_target_tokens: int
    """Real target tokens, EOS included: what the loss is a mean over."""

    def to(self, device: torch.device) -> Batch:
        """Copy to a device."""
        return Batch(
            source_ids=self.source_ids.to(device, non_blocking=True),
            source_mask=self.source_mask.to(device, non_blocking=True),
            target_ids=self.target_ids.to(device, non_blocking=True),
            target_mask=self.target_mask.to(device, non_blocking=True),
            num_target_tokens=self.num_target_tokens,
        )


class Sentences:
    """Many token sequences in one array: sentence i is `token_ids[starts[i] : starts[i + 1]]`."""

    def __init__(self, sequences: Sequence[Sequence[int]] = ()) -> None:
        """Copy sequences of ids; millions of them cost four bytes a token."""
        flat = [token_id for sequence in sequences for token_id in sequence]
        self.token_ids = np.asarray(flat, dtype=np.int32)
        self.lengths: Ints = np.asarray([len(sequence) for sequence in sequences], dtype=np.int64)
        self._find_starts()

    @classmethod
    def join(cls, parts: Sequence[Sentences]) -> Sentences:
        """Put the sentences of several collections behind one another."""
        joined = cls()
        if parts:
            joined.token_ids = np.concatenate([part.token_ids for part in parts])
            joined.lengths = np.concatenate([part.lengths for part in parts])
            joined._find_starts()
        return joined

    def _find_starts(self) -> None:
        self.starts: Ints = np.concatenate(([0], np.cumsum(self.lengths))).astype(np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.token_ids[self.starts[index] : self.starts[index + 1]]

    def pad(self, indices: Ints, pad_id: int) -> tuple[Tensor, Tensor]:
        """Put sentences side by side.

        Args:
            indices: Which sentences. Shape (B,).
            pad_id: Fills the rows of shorter sentences.

        Returns:
            Ids and the mask of real tokens, both of shape (B, longest).
        """
        lengths = self.lengths[indices]
        longest = int(lengths.max())
        padded = np.full((len(indices), longest), pad_id, dtype=np.int64)
        for row, index in enumerate(indices):
            padded[row, : lengths[row]] = self[int(index)]
        return torch.from_numpy(padded), length_mask(torch.from_numpy(lengths), longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokenized pairs, held in memory."""

    sources: Sentences
    """With EOS."""

    targets: Sentences
    """With EOS."""

    pad_id: int
    """What batches are filled with."""

    num_skipped: int = 0
    """Pairs that were left out because one side was over its limit."""

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Ints) -> Batch:
        """Put the pairs with these indices into one batch."""
        source_ids, source_mask = self.sources.pad(indices, self.pad_id)
        target_ids, target_mask = self.targets.pad(indices, self.pad_id)
        return Batch(
            source_ids=source_ids,
            source_mask=source_mask,
            target_ids=target_ids,
            target_mask=target_mask,
            num_target_tokens=int(self.targets.lengths[indices].sum()),
        )


def tokenize_corpus(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    *,
    max_source_tokens: int,
    max_target_tokens: int,
) -> Corpus:
    """Turn text pairs into ids; pairs with a side over its limit (EOS included) are left out and counted."""
    sources: list[Sentences] = []
    targets: list[Sentences] = []
    num_skipped = 0
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _TOKENIZE_AT_ONCE)):
        source_ids = tokenizer.encode_source_batch([source for source, _ in chunk])
        target_ids = tokenizer.encode_target_batch([target for _, target in chunk])
        kept = [
            (source, target)
            for source, target in zip(source_ids, target_ids, strict=True)
            if len(source) <= max_source_tokens and len(target) <= max_target_tokens
        ]
        sources.append(Sentences([source for source, _ in kept]))
        targets.append(Sentences([target for _, target in kept]))
        num_skipped += len(chunk) - len(kept)
    return Corpus(
        sources=Sentences.join(sources),
        targets=Sentences.join(targets),
        pad_id=tokenizer.pad_id,
        num_skipped=num_skipped,
    )


def plan_batches(corpus: Corpus, batch_tokens: int, order: Ints) -> list[Ints]:
    """Cut a corpus into batches of similar length.

    The sort by length is stable, so pairs of equal length stay in the order that `order` gives them: another order,
    other neighbours. Example: lengths 3 9 3 9, order 3 2 1 0 and a budget of 18 give [2, 0] and [3, 1].

    Args:
        corpus: The pairs.
        batch_tokens: Most padded tokens of a batch: rows times the longest side. A longer pair gets a batch of its own.
        order: Indices of all pairs, in the order in which equals are to stand.

    Returns:
        Indices of each batch, short pairs first.
    """
    sources, targets = corpus.sources.lengths[order], corpus.targets.lengths[order]
    by_length = order[np.lexsort((sources, targets))]
    longest_sides = np.maximum(corpus.sources.lengths, corpus.targets.lengths)[by_length]
    batches: list[Ints] = []
    start = longest = 0
    for position, length in enumerate(longest_sides.tolist()):
        longest = max(longest, length)
        if position > start and (position - start + 1) * longest > batch_tokens:
            batches.append(by_length[start:position])
            start, longest = position, length
    if start < len(by_length):
        batches.append(by_length[start:])
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """A place in an endless stream of batches."""

    epoch: int = 0
    """Times that the whole corpus was seen before."""

    batch: int = 0
    """Batches of this epoch that were taken already."""


class BatchStream:
    """Batches without end, in an order that seed and epoch decide alone.

    A stream that is opened at a `position` gives what the first one would have given from there on. Of several
    processes each takes every `world_size`-th batch, so that together they see what one process would see.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        batch_tokens: int,
        seed: int,
        position: StreamPosition | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Open the stream at a position, the start unless given."""
        if not len(corpus):
            raise ValueError("A stream needs at least one sentence pair.")
        self._corpus = corpus
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self.position = position or StreamPosition()
        self._plan = self._plan_epoch(self.position.epoch)

    @property
    def batches_per_epoch(self) -> int:
        """Batches of the present epoch."""
        return len(self._plan)

    def take(self, count: int) -> list[Batch]:
        """Give this process's share of the next `count * world_size` batches."""
        chosen = []
        for number in range(count * self._world_size):
            indices = self._next()
            if number % self._world_size == self._rank:
                chosen.append(self._corpus.batch(indices))
        return chosen

    def _next(self) -> Ints:
        epoch, batch = self.position.epoch, self.position.batch
        if batch >= len(self._plan):
            epoch, batch = epoch + 1, 0
            self._plan = self._plan_epoch(epoch)
        self.position = StreamPosition(epoch=epoch, batch=batch + 1)
        return self._plan[batch]

    def _plan_epoch(self, epoch: int) -> list[Ints]:
        random = np.random.default_rng((self._seed, epoch))
        batches = plan_batches(
            self._corpus, self._batch_tokens, random.permutation(len(self._corpus))
        )
        return [batches[number] for number in random.permutation(len(batches))]


def iterate_once(corpus: Corpus, batch_tokens: int) -> Iterator[Batch]:
    """Give every pair once, short ones first: for validation."""
    for indices in plan_batches(corpus, batch_tokens, np.arange(len(corpus))):
        yield corpus.batch(indices)
