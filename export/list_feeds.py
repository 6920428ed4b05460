"""Lists of a shortlist as the decoder graph reads them, laid out the plain way: for parity checks and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from export.runner import Arrays
from export.signature import (
    CHUNK_BIASES,
    CHUNK_ROWS,
    CHUNK_SCALES,
    CHUNK_WEIGHTS,
    CHUNK_WORDS,
    COLUMN_BIASES,
    COLUMN_SCALES,
    COLUMN_WEIGHTS,
    FREQUENT_BIASES,
    FREQUENT_SCALES,
    FREQUENT_WEIGHTS,
    LANE_CHUNKS,
    LANE_ROWS,
    LIST_IDS,
    ROW_LANES,
    ROW_SENTENCES,
    VOCAB_BLOCK,
    padded_frequent,
)

__all__ = ["lay_out_lists"]

IntArray = npt.NDArray[np.int64]

_NAMES = (
    (COLUMN_WEIGHTS, FREQUENT_WEIGHTS, CHUNK_WEIGHTS),
    (COLUMN_BIASES, FREQUENT_BIASES, CHUNK_BIASES),
    (COLUMN_SCALES, FREQUENT_SCALES, CHUNK_SCALES),
)


def lay_out_lists(
    fetch: Callable[[IntArray], Arrays],
    frequent: IntArray,
    own: Sequence[IntArray],
    lane_rows: IntArray,
    row_lanes: IntArray,
) -> Arrays:
    """Give what the shortlist's decoder reads beside the inputs of the decoder.

    Args:
        fetch: Gives the columns of words, as the columns graph does.
        frequent: Words of all lists.
        own: Further words of each sentence.
        lane_rows: Row in each lane, (B, J).
        row_lanes: Lane of each row, (R,).
    """
    num_lanes = lane_rows.shape[1]
    num_frequent = padded_frequent(len(frequent))
    most = max(1, *(-(-len(words) // CHUNK_WORDS) for words in own))
    ids = np.zeros((len(own), num_frequent + most * CHUNK_WORDS), np.int64)
    ids[:, : len(frequent)] = frequent
    chunks = [np.empty(0, np.int64)]  # the filler
    sentences = [0]
    places = np.zeros((len(own), most), np.int64)
    for sentence, words in enumerate(own):
        ids[sentence, num_frequent : num_frequent + len(words)] = words
        for number, first in enumerate(range(0, len(words), CHUNK_WORDS)):
            places[sentence, number] = len(chunks)
            chunks.append(words[first : first + CHUNK_WORDS])
            sentences.append(sentence)
    together = _columns(fetch, [frequent], num_frequent)
    apart = _columns(fetch, chunks, CHUNK_WORDS)
    feeds: Arrays = {}
    for column, frequent_name, chunk_name in _NAMES:
        if column in together:
            feeds[frequent_name] = together[column][0]
            feeds[chunk_name] = apart[column]
    for name in (FREQUENT_BIASES, FREQUENT_SCALES):
        if name in feeds:
            feeds[name] = feeds[name][0]
    return feeds | {
        LANE_ROWS: lane_rows,
        ROW_LANES: row_lanes,
        ROW_SENTENCES: row_lanes // num_lanes,
        CHUNK_ROWS: lane_rows[sentences],
        LANE_CHUNKS: places[:, None] * num_lanes + np.arange(num_lanes)[:, None],
        LIST_IDS: ids.reshape(len(own), -1, VOCAB_BLOCK),
    }


def _columns(fetch: Callable[[IntArray], Arrays], groups: Sequence[IntArray], size: int) -> Arrays:
    """Fetch columns of groups of words and fill each up with some of which the logit is -inf."""
    padded = np.zeros((len(groups), size), np.int64)
    for group, words in zip(padded, groups, strict=True):
        group[: len(words)] = words
    columns = fetch(padded)
    for biases, words in zip(columns[COLUMN_BIASES], groups, strict=True):
        biases[0, len(words) :] = -np.inf
    return columns
