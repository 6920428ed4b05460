"""Stage 5 of 10: which sentences go through the encoder together, and how they are laid out for it.

Sentences of similar length, longest first, so that little is padded and no run is larger than its budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from export.signature import MIN_SOURCE_LENGTH

__all__ = ["cut_into_batches", "pad_sources"]

IntArray = NDArray[np.int64]

_MAX_PADDING = 0.25
"""Share of a batch that may be padding before it is worth a run more."""
_LEAST_TOKENS = 64
"""A batch of fewer real tokens is not worth a run of its own."""


def cut_into_batches(lengths: list[int], max_padded_tokens: int) -> list[list[int]]:
    """Cut sentences into batches.

    With a budget of 16, lengths 3, 8, 2, 7 give [[1, 3], [0, 2]].

    Args:
        lengths: Tokens of each sentence.
        max_padded_tokens: Sentences x the longest of a batch; a sentence that is longer runs alone.

    Returns:
        Places of the sentences of each batch.
    """
    batches: list[list[int]] = []
    longest = real = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        length = lengths[place]
        if batches:
            padded = longest * (len(batches[-1]) + 1)
            wasteful = padded - real - length > _MAX_PADDING * padded and real >= _LEAST_TOKENS
            if padded <= max_padded_tokens and not wasteful:
                batches[-1].append(place)
                real += length
                continue
        batches.append([place])
        longest = real = length
    return batches


def pad_sources(
    sources: Sequence[tuple[int, ...]], pad_id: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Give what the encoder reads of a batch: ids (B, S), a mask (B, S) of ones on real tokens, and lengths (B,)."""
    lengths = np.array([len(source) for source in sources], np.int64)
    longest = max(MIN_SOURCE_LENGTH, int(lengths.max()))
    is_real = np.arange(longest) < lengths[:, None]  # (B, S)
    input_ids = np.full(is_real.shape, pad_id, np.int64)
    input_ids[is_real] = np.concatenate([np.array(source, np.int64) for source in sources])
    return input_ids, is_real.astype(np.int64), lengths
