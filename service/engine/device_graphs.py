"""Stages 5 and 6 of 10: small graphs that move caches from one block of a device into another, never through the host.

An array has five axes: planes, rows (or sentences), heads, positions, words of one position. Rows and positions are
taken by their numbers, so one graph reorders, drops, repeats, grows and shrinks; a position beyond the end is the last
one again, which nobody reads.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from numpy.typing import NDArray

from service.engine.device_memory import Device, DeviceArray, DeviceBinding, DeviceBlock
from service.engine.sessions import create_session

__all__ = ["DeviceGraphs"]

IntArray = NDArray[np.int64]

_CLEAR = (
    "eNrj4LJK4zLjYi3OSCxIFWKsVOJ3zs8rLknMK/FPCwaJaUlysZYl5pSmavFyMAqwajEyOLFUpRblL2BkEWJNzklNLIoShmnn4uLgYBdi4WLiYE"
    "wS4GKsFOLm4uRgFWLlYhZi9HNi4WIQEAUA8wUWmg=="
)
"""y (N) = zeros, of the shape that is given."""

_MOVE = (
    "eNrj4LLqYeRS4mKs4GLNL0pJLRJirFRic08syUgt0uLmYkmsyCyWYFzAyCTEkptflhqlAlQpJM8ly8EqJMnFLMQYACKCQIQHiHAGEeFRIjDDuL"
    "k4OdiFWEGifklAvZUYev3Q9DqxcDEIiAIA+lcWhQ=="
)
"""y (P, N, H, C, W): rows of x (P, R, H, C, W) in another order."""

_FIT = (
    "eNrj4LK6ysilxsVYwcWaX5SSWiTEmptflpqixOaeWJKRWqTFzcWSWJFZLMG4gJGJS4sLIsvFWZBfnFmSmZ9XLMRYiaGWGahWiDktsyRKBWiwkD"
    "yXLAerkCQXsxBjAIgIAhEeIMIZRIRHicDs5ubi5GAXYgWJ+kVJINuCJOObBDS1EsNUP7ipvmBTnVi4GAREAYpdKVs="
)
"""y (P, N, H, M, W): rows of x (P, R, H, C, W) in another order, and some of their positions."""

_JOIN = (
    "eNrj4LL6xsSlwcVYwcVZkF+cWZKZn1csxJyWWaLE5p5YkpFapMXNxZJYkVkswbyAkYnLiIs5L7WcixdIxCPUs4O4OPVocIHM44IpEmJOzMlRYn"
    "POz0tOLIGrZASpVOECyXGx5helpBYJMVZimAdSJcSSlZ+ZF6UCdLOQPJcsB6uQJBezEGMAiAgCER4gwhlEhEdJIHuLm4uTg12IFSTjG6UG9gmG"
    "CU5wE4IhJsigexbFFBGYY5FE/ZKAbqvEMNkPbrIv2GQnFi4GAVEADNpODw=="
)
"""y (P, N, H, M, W): rows of x (P, R, H, C, W), followed by those of new (P, B, H, S, W), in another order."""

_MASK = (
    "eNpNjsEKgkAYhFvb0p0g5AdDugR77BE62rVbdPG2xVKSrtW/QvY0PUwPlohEx/lm+JgIm4+ARlhad/YXhjTPgml6qsumclodHN8ba18WK6hbzY"
    "UvascYepIPa0otd5YZS/SJRKvl1rBfKwS+TsO3CEhWhq95+qegGVQU0gRjEvt88Tvwz7Ochj9A1EGJIBLHBKKlGPMOoF/1ikxiFCdfB0gtNA=="
)
"""y (B, S): 1 where a position is below the length, else 0.

The test of this module writes all of them again with the `onnx` library and compares.
"""


class DeviceGraphs:
    """Sessions of the small graphs; shared by all workers. What they raise are `sessions.RUN_ERRORS`.

    Attributes:
        device: Where they run.
    """

    def __init__(self, provider: str, device: Device) -> None:
        self.device = device
        self._clear, self._move, self._fit, self._join, self._mask = (
            create_session(zlib.decompress(base64.b64decode(text)), provider)
            for text in (_CLEAR, _MOVE, _FIT, _JOIN, _MASK)
        )

    def create_block(self, num_bytes: int) -> DeviceBlock:
        """Take memory and clear it, so that whatever is read from it is finite.

        Raises:
            EngineStepError: There is not enough.
        """
        block = DeviceBlock(self.device, num_bytes)
        binding = DeviceBinding(self._clear)
        binding.feed("shape", np.array([block.num_words]))
        _write(binding, block.words())
        return block

    def select(
        self, array: DeviceArray, order: IntArray, num_positions: int, into: DeviceBlock
    ) -> DeviceArray:
        """Copy rows, with so many of their positions, into another block.

        Args:
            array: Shape (P, R, H, C, W).
            order: Rows to take, any number of times. Shape (N,).
            num_positions: M.
            into: The other block.

        Returns:
            Shape (P, N, H, M, W).
        """
        planes, _, heads, capacity, width = array.shape
        same = capacity == num_positions
        result = DeviceArray(into, array.dtype, (planes, len(order), heads, num_positions, width))
        binding = DeviceBinding(self._move if same else self._fit)
        binding.read_device("x", array.words())
        binding.feed("order", order)
        if not same:
            binding.feed("positions", _positions(num_positions, capacity))
        _write(binding, result.words())
        return result

    def join(
        self,
        array: DeviceArray,
        new: DeviceArray,
        order: IntArray,
        num_positions: int,
        into: DeviceBlock,
    ) -> DeviceArray:
        """As `select`, from the rows of `array` followed by those of `new`, (P, B, H, S, W)."""
        planes, _, heads, capacity, width = array.shape
        result = DeviceArray(into, array.dtype, (planes, len(order), heads, num_positions, width))
        binding = DeviceBinding(self._join)
        binding.read_device("x", array.words())
        binding.read_device("new", new.words())
        binding.feed("positions", _positions(num_positions, capacity))
        binding.feed("new_positions", _positions(num_positions, new.shape[3]))
        binding.feed("order", order)
        _write(binding, result.words())
        return result

    def mask(self, lengths: IntArray, num_positions: int, into: DeviceBlock) -> DeviceArray:
        """Give 1 on real source tokens and 0 on padding, (B, S), from lengths (B,)."""
        result = DeviceArray(into, np.int64, (len(lengths), num_positions))
        binding = DeviceBinding(self._mask)
        binding.feed("lengths", lengths)
        binding.feed("positions", np.arange(num_positions))
        binding.feed("axis", np.array([1]))
        _write(binding, result)
        return result


def _positions(wanted: int, present: int) -> IntArray:
    """The first positions; beyond the last, that one again."""
    return np.minimum(np.arange(wanted), present - 1)


def _write(binding: DeviceBinding, array: DeviceArray) -> None:
    binding.write_device("y", array)
    binding.run()
