"""Stage 6 of 10: keys and values of the target so far, of every layer and row, updated in place by the decoder graph.

One array, (L, 2, R_cap, H, C, Dh): the first R rows of each layer are contiguous, so R may change every step without a
copy. Rows and positions grow by buckets; only valid positions of a row are ever copied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["SelfAttentionCache"]

IntArray = NDArray[np.int64]

_LEAST_ROWS = 8
_POSITION_STEP = 32
_KEPT_WHEN_EMPTY_BYTES = 32 * 1024 * 1024


def _bucket_of_rows(needed: int) -> int:
    """The smallest of 8, 16, 32, ... that is enough."""
    size = _LEAST_ROWS
    while size < needed:
        size *= 2
    return size


def _bucket_of_positions(needed: int) -> int:
    """The smallest of 32, 64, 96, 128, 160, 192, 224, 256, 320, ... that is enough: a quarter more each time.

    Memory is rows x positions, so steps are smaller here.
    """
    size = _POSITION_STEP
    while size < needed:
        size += max(_POSITION_STEP, size // 4 // _POSITION_STEP * _POSITION_STEP)
    return size


class SelfAttentionCache:
    """The buffer; who lies where is `DecoderState`'s business."""

    def __init__(self, num_layers: int, num_heads: int, head_size: int) -> None:
        self._sizes = (num_layers, num_heads, head_size)
        self.bytes_per_position = num_layers * 2 * num_heads * head_size * 4
        """Of one row."""
        self.buffer = self._allocate(0, 0)

    def bytes_for(self, num_rows: int, num_positions: int) -> int:
        """Memory held for so many rows of such a length."""
        rows, positions = _bucket_of_rows(num_rows), _bucket_of_positions(num_positions)
        return rows * positions * self.bytes_per_position

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self.buffer.nbytes

    def has_room(self, num_rows: int, num_positions: int) -> bool:
        """Whether so many rows of such a length fit."""
        return bool(num_rows <= self.buffer.shape[2] and num_positions <= self.buffer.shape[4])

    def grow(self, num_rows: int, num_positions: int, lengths: IntArray) -> None:
        """Make room.

        Args:
            num_rows: Rows that must fit.
            num_positions: Positions that must fit.
            lengths: Valid positions of the rows that are there, by place.
        """
        old = self.buffer
        self.buffer = self._allocate(
            _bucket_of_rows(max(num_rows, len(lengths))), _bucket_of_positions(num_positions)
        )
        for place, length in enumerate(lengths.tolist()):
            self.buffer[:, :, place, :, :length] = old[:, :, place, :, :length]

    def copy(
        self, sources: IntArray, destinations: IntArray, starts: IntArray, ends: IntArray
    ) -> None:
        """Copy positions start to end of rows to other places."""
        buffer = self.buffer
        for source, destination, start, end in zip(
            sources.tolist(), destinations.tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            buffer[:, :, destination, :, start:end] = buffer[:, :, source, :, start:end]

    def release(self) -> None:
        """Give large memory back; there are no rows."""
        if self.buffer.nbytes > _KEPT_WHEN_EMPTY_BYTES:
            self.buffer = self._allocate(0, 0)

    def _allocate(self, rows: int, positions: int) -> NDArray[np.float32]:
        num_layers, num_heads, head_size = self._sizes
        # Not cleared: the graph reads no position that was not written, and untouched pages cost nothing.
        return np.empty((num_layers, 2, rows, num_heads, positions, head_size), np.float32)
