"""Which target words a source word becomes, counted in sentence pairs: IBM Model 1 with a prior for the diagonal.

Brown et al. 1993, and Dyer et al. 2013 for the prior. Each target word is explained by the source words of its
sentence; how often one explains another is estimated by expectation maximization. Pairs are taken in blocks, so that
memory does not grow with their number: each block starts from what the blocks before it have taught.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["AlignmentCounts", "TokenPairs", "count_alignments"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_BLOCK_LINKS = 20_000_000
"""Pairs of words that may be linked in one block: about 1 GB of memory."""
_ITERATIONS = 6
_TENSION = 4.0
"""How much a link off the diagonal is worse: e^-4 from corner to corner."""
_LEAST_COUNT = 0.003
"""Less is forgotten between blocks."""


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """Token ids of sentence pairs, all sentences of a side in one array."""

    source_ids: NDArray[np.uint32]
    source_lengths: IntArray
    target_ids: NDArray[np.uint32]
    target_lengths: IntArray

    @classmethod
    def from_lists(
        cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> TokenPairs:
        """Take sentences with their translations."""
        return cls(*_flatten(sources), *_flatten(targets))

    @classmethod
    def concatenate(cls, parts: Sequence[TokenPairs]) -> TokenPairs:
        """Join pairs that were read one part after the other."""
        names = ("source_ids", "source_lengths", "target_ids", "target_lengths")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.source_lengths)


@dataclass(frozen=True, slots=True)
class AlignmentCounts:
    """How often a source word became a target word; each pair once, ascending."""

    keys: IntArray
    """source * V + target, (n,)"""
    counts: FloatArray
    """Expected, (n,)"""
    vocab_size: int
    """V, of the target."""

    @property
    def sources(self) -> IntArray:
        """Source word of each pair, (n,)."""
        return self.keys // self.vocab_size

    @property
    def targets(self) -> IntArray:
        """Target word of each pair, (n,)."""
        return self.keys % self.vocab_size


def count_alignments(
    pairs: TokenPairs, ignored: NDArray[np.bool_], source_vocab_size: int
) -> AlignmentCounts:
    """Align the words of sentence pairs.

    Args:
        pairs: Sentences and their translations.
        ignored: Target words that need no explanation, (V,).
        source_vocab_size: Words of the source.
    """
    known = AlignmentCounts(np.empty(0, np.int64), np.empty(0), len(ignored))
    for links in _blocks(pairs, ignored):
        found = _align(links, known, source_vocab_size)
        together = _add(known, found)
        kept = together.counts >= _LEAST_COUNT
        known = AlignmentCounts(together.keys[kept], together.counts[kept], len(ignored))
    return known


@dataclass(frozen=True, slots=True)
class _Links:
    """Every target word of a block with every source word of its sentence; links of one target word are adjacent."""

    keys: IntArray
    prior: NDArray[np.float32]
    group_starts: IntArray
    """Where the links of each target word begin."""
    group_sizes: IntArray


def _blocks(pairs: TokenPairs, ignored: NDArray[np.bool_]) -> Iterator[_Links]:
    """Cut pairs into blocks, without the target words that are ignored."""
    source_ends, target_ends = pairs.source_lengths.cumsum(), pairs.target_lengths.cumsum()
    is_wanted = ~ignored[pairs.target_ids]
    wanted_before = np.concatenate([[0], is_wanted.cumsum()])
    wanted = wanted_before[target_ends] - wanted_before[target_ends - pairs.target_lengths]
    block_of = (wanted * pairs.source_lengths).cumsum() // _BLOCK_LINKS
    for block in np.unique(block_of):
        rows = (block_of == block).nonzero()[0]
        first, last = rows[0], rows[-1]
        words = slice(target_ends[first] - pairs.target_lengths[first], target_ends[last])
        sentences = np.arange(first, last + 1).repeat(pairs.target_lengths[rows])
        places = (
            np.arange(words.start, words.stop) - (target_ends - pairs.target_lengths)[sentences]
        )
        kept = is_wanted[words]
        yield _link(
            pairs,
            sentences[kept],
            pairs.target_ids[words][kept].astype(np.int64),
            ((places + 0.5) / pairs.target_lengths[sentences])[kept],
            (source_ends - pairs.source_lengths, len(ignored)),
        )


def _link(
    pairs: TokenPairs,
    sentences: IntArray,
    targets: IntArray,
    heights: FloatArray,
    layout: tuple[IntArray, int],
) -> _Links:
    """Link target words, each at its height in its sentence between 0 and 1, with all source words of the sentence."""
    source_starts, vocab_size = layout
    sizes = pairs.source_lengths[sentences]
    starts = sizes.cumsum() - sizes
    places = np.arange(int(sizes.sum())) - starts.repeat(sizes)
    sources = pairs.source_ids[source_starts[sentences].repeat(sizes) + places].astype(np.int64)
    distance = np.abs((places + 0.5) / sizes.repeat(sizes) - heights.repeat(sizes))
    prior = np.exp(-_TENSION * distance).astype(np.float32)
    return _Links(sources * vocab_size + targets.repeat(sizes), prior, starts, sizes)


def _align(links: _Links, known: AlignmentCounts, source_vocab_size: int) -> AlignmentCounts:
    """Estimate the counts of a block."""
    keys, places = np.unique(links.keys, return_inverse=True)
    earlier = _look_up(known, keys)
    sources = keys // known.vocab_size
    probabilities = np.ones(len(keys), np.float32)
    totals_before = _sum_by(known.sources, known.counts, source_vocab_size)
    if len(known.keys):
        probabilities = _normalize(earlier + _LEAST_COUNT, sources, totals_before)
    counts = np.empty(0)
    for _ in range(_ITERATIONS if len(keys) else 0):
        weights = probabilities[places] * links.prior
        sums = np.add.reduceat(weights, links.group_starts)
        weights /= sums.repeat(links.group_sizes)
        counts = _sum_by(places, weights, len(keys))
        totals = totals_before + _sum_by(sources, counts, source_vocab_size)
        probabilities = _normalize(earlier + counts, sources, totals)
    return AlignmentCounts(keys, counts, known.vocab_size)


def _sum_by(groups: IntArray, values: NDArray[np.floating], num_groups: int) -> FloatArray:
    return np.bincount(groups, values, num_groups).astype(np.float64)


def _normalize(counts: FloatArray, sources: IntArray, totals: FloatArray) -> NDArray[np.float32]:
    """Turn counts into probabilities of a target word, given its source word."""
    smallest = np.finfo(np.float32).tiny
    return np.maximum(counts / np.maximum(totals[sources], _LEAST_COUNT), smallest).astype(
        np.float32
    )


def _look_up(known: AlignmentCounts, keys: IntArray) -> FloatArray:
    if not len(known.keys):
        return np.zeros(len(keys))
    found = np.minimum(known.keys.searchsorted(keys), len(known.keys) - 1)
    return np.where(known.keys[found] == keys, known.counts[found], 0.0)


def _add(one: AlignmentCounts, other: AlignmentCounts) -> AlignmentCounts:
    keys = np.union1d(one.keys, other.keys)
    counts = np.zeros(len(keys))
    for part in (one, other):
        counts[keys.searchsorted(part.keys)] += part.counts
    return AlignmentCounts(keys, counts, one.vocab_size)


def _flatten(sentences: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint32], IntArray]:
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    parts = [np.array(sentence, np.uint32) for sentence in sentences]
    return np.concatenate([np.empty(0, np.uint32), *parts]), lengths
