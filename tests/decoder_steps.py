"""One decoder step on made-up caches: what a test needs to run a decoder graph without an encoder and a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from export.bundle import Architecture
from export.lanes import place_heads
from export.signature import (
    EDIT_BIASES,
    EDIT_POSITIONS,
    EDIT_SCALES,
    ENCODER_MASK,
    INPUT_IDS,
    LANE_HEADS,
    LOG_PROB_ROWS,
    MIN_CAPACITY,
    MIN_LANES,
    MIN_SOURCE_LENGTH,
    NUM_CANDIDATES,
    PAST_LENGTHS,
    ROW_HEADS,
    TOTAL_LENGTH,
    cross_key,
    cross_value,
    past_self_key,
    past_self_value,
)

PASTS = (0, 1, 7, 8, 15, 31, 33, 64, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one decoder row brings into a step."""

    token_id: int
    keys_values: Sequence[
        npt.NDArray[np.float32]
    ]  # (H, past, Dh) for keys and values of each layer
    cross_keys: Sequence[npt.NDArray[np.float32]]  # (H, Dh, S)
    cross_values: Sequence[npt.NDArray[np.float32]]  # (H, S, Dh)


def random_row(shape: Architecture, past: int, length: int, rng: np.random.Generator) -> Row:
    """Draw a row with `past` tokens in its cache and a source of `length` tokens."""
    layers, heads, size = shape.num_decoder_layers, shape.num_heads, shape.head_size

    def normal(*axes: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal(axes, np.float32)

    return Row(
        token_id=int(rng.integers(3, shape.vocab_size)),
        keys_values=[normal(heads, past, size) for _ in range(2 * layers)],
        cross_keys=[3 * normal(heads, size, length) for _ in range(layers)],
        cross_values=[normal(heads, length, size) for _ in range(layers)],
    )


def step_feeds(  # noqa: PLR0913 - all that a batch may differ in
    shape: Architecture,
    rows: Sequence[Row],
    *,
    spare_source: int = 0,
    spare_capacity: int = 0,
    num_lanes: int = MIN_LANES,
    sentence_sizes: Sequence[int] | None = None,
    num_candidates: int = 8,
    int8_caches: bool = False,
) -> dict[str, Any]:
    """Give the inputs of one step; whatever no row owns is filled with large numbers."""
    sizes = sentence_sizes or [1] * len(rows)  # rows of one sentence share the sources of its first
    firsts = np.cumsum([0, *sizes[:-1]])
    past = past_lengths(rows)
    lengths = [rows[first].cross_keys[0].shape[2] for first in firsts]
    capacity = max(MIN_CAPACITY, max(past) + 1 + spare_capacity)
    longest = max(MIN_SOURCE_LENGTH, max(lengths) + spare_source)
    lanes = np.array(
        [
            [first + lane % size for lane in range(num_lanes)]
            for first, size in zip(firsts, sizes, strict=True)
        ]
    )
    row_lanes = np.concatenate([s * num_lanes + np.arange(size) for s, size in enumerate(sizes)])
    lane_heads, row_heads = place_heads(lanes, row_lanes, shape.num_heads)
    feeds: dict[str, Any] = {
        INPUT_IDS: np.array([row.token_id for row in rows]),
        PAST_LENGTHS: np.array(past, np.int32),
        TOTAL_LENGTH: np.array(capacity, np.int32),
        ENCODER_MASK: (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64),
        LANE_HEADS: lane_heads,
        ROW_HEADS: row_heads,
        NUM_CANDIDATES: np.array([num_candidates]),
        EDIT_POSITIONS: np.zeros(0, np.int64),
        EDIT_SCALES: np.zeros(0, np.float32),
        EDIT_BIASES: np.zeros(0, np.float32),
        LOG_PROB_ROWS: np.arange(len(rows)),
    }
    heads, size = shape.num_heads, shape.head_size
    layers = range(shape.num_decoder_layers)
    for layer in layers:
        for part, name in enumerate((past_self_key(layer), past_self_value(layer))):
            dtype, unit = (np.int8, 1 / 32) if int8_caches else (np.float32, 1.0)
            cache = np.full((len(rows), heads, capacity, size), 50, dtype)
            for row, length, slot in zip(rows, past, cache, strict=True):
                slot[:, :length] = (row.keys_values[2 * layer + part] / unit).clip(-127, 127)
            feeds[name] = cache
        keys = np.full((len(sizes), heads, size, longest), 50.0, np.float32)
        values = np.full((len(sizes), heads, longest, size), 50.0, np.float32)
        for sentence, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
            keys[sentence, :, :, :length] = rows[first].cross_keys[layer]
            values[sentence, :, :length] = rows[first].cross_values[layer]
        feeds[cross_key(layer)], feeds[cross_value(layer)] = keys, values
    return feeds


def past_lengths(rows: Sequence[Row]) -> list[int]:
    """Tokens in the cache of each row."""
    return [row.keys_values[0].shape[1] for row in rows]


def read_step(session: Any, rows: Sequence[Row], feeds: dict[str, Any]) -> list[bytes]:
    """Run the step and give each row's results, in which bits count, as bytes."""
    outputs = session.run(None, feeds)
    past = past_lengths(rows)
    return [
        b"".join(output[row].tobytes() for output in outputs[:3])
        + b"".join(cache[row][:, : past[row] + 1].tobytes() for cache in outputs[3:])
        for row in range(len(rows))
    ]
