"""Stage 6 of 10: keys and values of the target so far in the memory of a device, updated in place by the decoder graph.

One array, (2 L, R, H, C, Dh), of exactly the rows and hardly more positions than there are: a device copies all of it
faster than this process could find out what need not be copied. Which rows go on is only noted; they move once, right
before the next step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.engine.decoder_state import CacheShape
from service.engine.device_blocks import TwoBlocks
from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import DeviceArray

__all__ = ["DeviceSelfAttention"]

IntArray = NDArray[np.int64]

_POSITION_STEP = 32
_NO_ROWS: IntArray = np.empty(0, np.int64)


def _capacity(needed: int) -> int:
    """The smallest multiple of 32 positions that is enough."""
    return -(-needed // _POSITION_STEP) * _POSITION_STEP


class DeviceSelfAttention:
    """Cached positions of rows in logical order; a row that joined has none."""

    _cache: DeviceArray | None
    _sources: IntArray
    """Of each row, where in `_cache` its past lies."""

    def __init__(self, shape: CacheShape, dtype: type[np.generic], graphs: DeviceGraphs) -> None:
        self._shape = shape
        self._dtype = np.int8 if shape.int8_caches else dtype
        self._graphs = graphs
        num_numbers = shape.num_layers * 2 * shape.num_heads * shape.head_size
        self.bytes_per_position = num_numbers * np.dtype(self._dtype).itemsize
        """Of one row."""
        self._blocks = TwoBlocks(graphs)
        self.reset()

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._blocks.num_bytes

    def bytes_for(self, num_rows: int, num_positions: int) -> int:
        """Memory held, at most, for so many rows of such a length."""
        return TwoBlocks.bytes_for(self._bytes_of(num_rows, _capacity(num_positions)))

    def append(self, num_rows: int) -> None:
        """Let rows join. Where they lie is any row's past, which they do not look at."""
        self._sources = np.concatenate([self._sources, np.zeros(num_rows, np.int64)])

    def gather(self, parents: IntArray) -> None:
        """Let the next rows continue these."""
        self._sources = self._sources[parents]

    def prepare(self, num_positions: int) -> DeviceArray:
        """Bring rows where they belong, with room for so many positions.

        Returns:
            Keys and values of every layer in turn, (2 L, R, H, C, Dh).

        Raises:
            EngineStepError: There is not enough memory.
        """
        num_rows, capacity = len(self._sources), _capacity(num_positions)
        cache = self._cache
        if cache is not None and num_positions <= cache.shape[3] and self._is_settled(cache):
            return cache
        block = self._blocks.next(self._bytes_of(num_rows, capacity))
        if cache is None:
            heads, head_size = self._shape.num_heads, self._shape.head_size
            axes = (2 * self._shape.num_layers, num_rows, heads, capacity, head_size)
            cache = DeviceArray(block, self._dtype, axes)
        else:
            cache = self._graphs.select(cache, self._sources, capacity, block)
        self._cache = cache
        self._sources = np.arange(num_rows)
        return cache

    def reset(self) -> None:
        """Drop all rows and give memory back."""
        self._cache = None
        self._sources = _NO_ROWS
        self._blocks.release()

    def _is_settled(self, cache: DeviceArray) -> bool:
        num_rows = cache.shape[1]
        return len(self._sources) == num_rows and bool((self._sources == np.arange(num_rows)).all())

    def _bytes_of(self, num_rows: int, capacity: int) -> int:
        return num_rows * capacity * self.bytes_per_position
