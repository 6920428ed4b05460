"""Stage 6 of 10: keys and values of the target so far, of every layer and row, updated in place by the decoder graph.

One array, (L, 2, R_cap, H, C, Dh): the first R rows of each layer are contiguous, so R may change every step without a
copy. Memory grows by large buckets. Inside it C is hardly more than the longest row: attention reads the heads of all
rows one after the other, and what lies between them costs as much as what is read (`benchmarks/RESULTS.md`).

To change C everything moves. There is room for one plane (all rows of one layer's keys or values) more than there are,
so planes move one after the other into the place that the one before has left: with four planes, from [0 1 2 3 -] to
[- 0 1 2 3] and back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["SelfAttentionCache"]

IntArray = NDArray[np.int64]
CacheArray = NDArray[np.float32] | NDArray[np.int8]

_LEAST_ROWS = 8
_POSITION_STEP = 32
_SPARE_POSITIONS = {np.dtype(np.float32): 4, np.dtype(np.int8): 8}
"""Room for more positions: moving everything less often is worth more where what lies between is small."""
_SHRINK_BELOW = 0.75
_NEAR_BYTES = 2 * 1024 * 1024
"""Caches of this size stay near the processor anyway, so moving them would not pay."""
_KEPT_WHEN_EMPTY_BYTES = 128 * 1024 * 1024
"""Batches are empty again and again, and taking 108 MB for each of two workers anew cost a sixth of a second."""


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
    """The buffer; who lies where is `DecoderState`'s business.

    Attributes:
        buffer: (L, 2, R_cap, H, C, Dh), a view of the memory that is held.
    """

    buffer: CacheArray
    _memory: CacheArray

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_size: int,
        dtype: type[np.float32 | np.int8] = np.float32,
    ) -> None:
        self._sizes = (num_layers, num_heads, head_size)
        self._dtype = np.dtype(dtype)
        self.bytes_per_position = num_layers * 2 * num_heads * head_size * self._dtype.itemsize
        """Of one row."""
        self._hold(0, 0)

    def bytes_for(self, num_rows: int, num_positions: int) -> int:
        """Memory held for so many rows of such a length."""
        rows, positions = _bucket_of_rows(num_rows), _bucket_of_positions(num_positions)
        num_layers, num_heads, head_size = self._sizes
        num_planes = 2 * num_layers + 1
        return num_planes * rows * num_heads * positions * head_size * self._dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._memory.nbytes

    def fits(self, num_rows: int, num_positions: int) -> bool:
        """Whether there is room for so many rows of such a length, and not much more."""
        rows, capacity = self._held[0], self.buffer.shape[4]
        if num_rows > rows or num_positions > capacity:
            return False
        num_bytes = num_rows * capacity * self.bytes_per_position
        return bool(
            num_bytes <= _NEAR_BYTES or self._capacity(num_positions) > _SHRINK_BELOW * capacity
        )

    def fit(self, num_rows: int, num_positions: int, lengths: IntArray) -> None:
        """Make room, and leave not much more.

        Args:
            num_rows: Rows that must fit.
            num_positions: Positions that must fit.
            lengths: Valid positions of the rows that are there, by place.
        """
        old = self.buffer
        num_rows = max(num_rows, len(lengths))
        if num_rows > self._held[0] or num_positions > self._held[1]:
            self._hold(_bucket_of_rows(num_rows), _bucket_of_positions(num_positions))
        capacity = _bucket_of_positions(num_positions)
        if num_rows * capacity * self.bytes_per_position > _NEAR_BYTES:
            capacity = self._capacity(num_positions)
        self.buffer = self._view(min(capacity, self._held[1]), not self._is_shifted)
        rows, positions = slice(len(lengths)), slice(int(lengths.max(initial=0)))
        planes = [(layer, side) for layer in range(self._sizes[0]) for side in range(2)]
        for plane in reversed(planes) if self._is_shifted else planes:
            self.buffer[plane][rows, :, positions] = old[plane][rows, :, positions]

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
        if self._memory.nbytes > _KEPT_WHEN_EMPTY_BYTES:
            self._hold(0, 0)

    def _hold(self, rows: int, positions: int) -> None:
        """Take other memory; there is nothing in it."""
        num_layers, num_heads, head_size = self._sizes
        # Not cleared: the graph reads no position that was not written, and untouched pages cost nothing.
        size = rows * num_heads * positions * head_size
        self._memory = np.empty((2 * num_layers + 1, size), self._dtype)
        self._held = (rows, positions)
        self.buffer = self._view(min(_SPARE_POSITIONS[self._dtype], positions), is_shifted=False)

    def _capacity(self, needed: int) -> int:
        """Positions between one head and the next: a multiple of 4, and of 8, 12, ... beyond 64, 96, ... positions.

        With int8 twice as many.
        """
        step = _SPARE_POSITIONS[self._dtype] * max(1, needed // _POSITION_STEP)
        return -(-needed // step) * step

    def _view(self, capacity: int, is_shifted: bool) -> CacheArray:
        """The memory with so many positions of each head, without the last plane or without the first."""
        self._is_shifted = is_shifted
        num_layers, num_heads, head_size = self._sizes
        rows = self._held[0]
        planes = slice(1, None) if is_shifted else slice(-1)
        used = self._memory[planes, : rows * num_heads * capacity * head_size]
        return used.reshape(num_layers, 2, rows, num_heads, capacity, head_size)
