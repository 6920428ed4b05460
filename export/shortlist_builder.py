"""From sentence pairs to a vocabulary shortlist: for each source word the target words that it became most often.

The most frequent target words need no list: they are in all of them. What is spelled the same on both sides, such as
the pieces of a name, is always among the words of its source.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from export.alignment_counts import AlignmentCounts, TokenPairs, count_alignments
from export.shortlist import Shortlist
from model.tokenizer import Tokenizer

__all__ = ["LEAST_COUNT", "NUM_BEST", "NUM_FREQUENT", "build_shortlist"]

NUM_FREQUENT = 1000
"""Target words that are in every list."""

NUM_BEST = 50
"""The most target words of one source word."""

LEAST_COUNT = 0.3
"""A pair that was aligned less often, in expectation over all of the text, is noise. Without such pairs the words of 32
sentences are a fifth fewer, and translations as good (`benchmarks/RESULTS.md`)."""

_NUM_UNEXPLAINED = 100
"""The most frequent target words stand beside everything: aligning them costs half of the time and helps none."""

_LARGEST_UINT16 = 2**16 - 1

IntArray = NDArray[np.int64]


def build_shortlist(
    pairs: TokenPairs,
    tokenizer: Tokenizer,
    *,
    num_frequent: int = NUM_FREQUENT,
    num_best: int = NUM_BEST,
    least_count: float = LEAST_COUNT,
) -> Shortlist:
    """Align sentence pairs and keep the best.

    Args:
        pairs: Sources and their translations, EOS included; the more the better, a hundred thousand at least.
        tokenizer: Their vocabulary.
        num_frequent: Target words that are in every list.
        num_best: The most target words of one source word.
        least_count: Pairs that were aligned less often, in expectation over all of the text, are left out.
    """
    vocab_size = tokenizer.target_vocab_size
    frequent = _most_frequent(pairs, tokenizer, num_frequent)
    in_all_lists = np.zeros(vocab_size, bool)
    in_all_lists[frequent] = True
    ignored = np.zeros(vocab_size, bool)
    ignored[frequent[:_NUM_UNEXPLAINED]] = True
    counts = count_alignments(pairs, ignored, tokenizer.source_vocab_size)
    sources, targets = _with_same_spelling(counts, tokenizer, in_all_lists, least_count)
    is_best = _rank_in_group(sources) < num_best
    sources, targets = sources[is_best], targets[is_best]
    dtype = np.uint16 if vocab_size - 1 <= _LARGEST_UINT16 else np.uint32
    offsets = sources.searchsorted(np.arange(tokenizer.source_vocab_size + 1))
    return Shortlist(
        frequent=frequent.astype(dtype),
        offsets=offsets.astype(np.uint32),
        targets=targets.astype(dtype),
    )


def _most_frequent(pairs: TokenPairs, tokenizer: Tokenizer, count: int) -> IntArray:
    """Give the most frequent target words, EOS first; what never stands in a translation is left out."""
    frequencies = np.bincount(pairs.target_ids, minlength=tokenizer.target_vocab_size)
    for special in (tokenizer.unk_id, tokenizer.pad_id, tokenizer.bos_id):
        if special is not None:
            frequencies[special] = 0
    frequencies[tokenizer.eos_id] = frequencies.sum() + 1
    order = (-frequencies).argsort(kind="stable")[:count]
    found: IntArray = order[frequencies[order] > 0]
    return found


def _with_same_spelling(
    counts: AlignmentCounts,
    tokenizer: Tokenizer,
    in_all_lists: NDArray[np.bool_],
    least_count: float,
) -> tuple[IntArray, IntArray]:
    """Give pairs of source and target word by source, the best first, with each word's own spelling before all."""
    spelled = {
        piece: number
        for number, piece in enumerate(tokenizer.target_pieces(range(len(in_all_lists))))
    }
    pieces = tokenizer.source_pieces(range(tokenizer.source_vocab_size))
    same = [(word, spelled[piece]) for word, piece in enumerate(pieces) if piece in spelled]
    never = {tokenizer.unk_id, tokenizer.pad_id, tokenizer.bos_id}
    same = [(s, t) for s, t in same if t not in never and not in_all_lists[t]]
    copies = np.array(same, np.int64).reshape(-1, 2)
    is_listed = ~in_all_lists[counts.targets] & (counts.counts >= least_count)
    keys = np.concatenate([copies @ (counts.vocab_size, 1), counts.keys[is_listed]])
    worth = np.concatenate([np.full(len(copies), np.inf), counts.counts[is_listed]])
    order = np.lexsort((keys, -worth, keys // counts.vocab_size))
    keys = keys[order]
    _, firsts = np.unique(keys, return_index=True)
    keys = keys[np.sort(firsts)]
    return keys // counts.vocab_size, keys % counts.vocab_size


def _rank_in_group(groups: IntArray) -> IntArray:
    """Number the members of each group: [3, 3, 7] gives [0, 1, 0]."""
    rank: IntArray = np.arange(len(groups)) - groups.searchsorted(groups)
    return rank
