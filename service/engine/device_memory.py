"""Stages 5 and 6 of 10: memory of a device, and arrays that lie in it.

What a graph reads or writes is bound by its address, so one block may hold several arrays, one after the other, and
the same bytes may be looked at as another type: what moves caches moves words of 16 bits, whatever their precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from service.engine.graph_binding import GraphBinding
from service.errors import EngineStepError

__all__ = ["MAX_BLOCK_BYTES", "WORD_BYTES", "Device", "DeviceArray", "DeviceBinding", "DeviceBlock"]

AnyArray = NDArray[np.generic]

WORD_BYTES = 2
MAX_BLOCK_BYTES = WORD_BYTES * (2**31 - 1)
"""CUDA kernels count words with 32 bits."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where memory lies, as ONNX Runtime names it."""

    kind: str
    """"cpu" or "cuda"."""
    index: int = 0


class DeviceBlock:
    """Memory of one device; what is in it at first is undefined."""

    def __init__(self, device: Device, num_bytes: int) -> None:
        """Take memory.

        Raises:
            EngineStepError: There is not enough, or it is more than kernels can count.
        """
        self.device = device
        self.num_words = max(1, -(-num_bytes // WORD_BYTES))
        if self.num_bytes > MAX_BLOCK_BYTES:
            raise EngineStepError(f"A block of {num_bytes} bytes is too large for one kernel.")
        try:
            self._value = ort.OrtValue.ortvalue_from_shape_and_type(
                (self.num_words,), np.int16, device.kind, device.index
            )
        except RuntimeError as error:
            raise EngineStepError(f"The device has no {num_bytes} bytes left.") from error
        self.address: int = self._value.data_ptr()

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self.num_words * WORD_BYTES

    def words(self) -> DeviceArray:
        """All of it as one array of words."""
        return DeviceArray(self, np.int16, (self.num_words,))


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A contiguous array in a block, which lives as long as the array does."""

    block: DeviceBlock
    dtype: type[np.generic]
    shape: tuple[int, ...]
    offset: int = 0
    """Bytes of the block before it."""

    def __post_init__(self) -> None:
        assert self.offset + self.num_bytes <= self.block.num_bytes, (self.shape, self.offset)

    @property
    def num_bytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def address(self) -> int:
        """Where its first element lies."""
        return self.block.address + self.offset

    def part(self, index: int) -> DeviceArray:
        """The array at this place of the first axis."""
        part = replace(self, shape=self.shape[1:], offset=0)
        return replace(part, offset=self.offset + index * part.num_bytes)

    def reshape(self, *shape: int) -> DeviceArray:
        """The same elements with other axes."""
        return replace(self, shape=shape)

    def words(self) -> DeviceArray:
        """The same bytes as words, which fill the last axis exactly: it has an even number of bytes."""
        num_words, rest = divmod(self.shape[-1] * np.dtype(self.dtype).itemsize, WORD_BYTES)
        assert not rest, self.shape
        return replace(self, dtype=np.int16, shape=(*self.shape[:-1], num_words))


class DeviceBinding(GraphBinding):
    """A binding that takes arrays of a device beside those of this process.

    Those of this process are copied over the bus when they are bound, not when the graph runs: so whatever is new is
    bound again, where the CPU only writes into the array that is bound.
    """

    def __init__(self, session: ort.InferenceSession) -> None:
        super().__init__(session)
        self._device_arrays: dict[str, DeviceArray] = {}

    def run(self) -> None:
        """Run the graph; copies to the device and from it are complete before it begins and when it returns."""
        self._binding.synchronize_inputs()
        super().run()
        self._binding.synchronize_outputs()

    def feed(self, name: str, array: AnyArray) -> None:
        """Give the graph an input. An array that is given twice must not have changed between."""
        if self._fed.get(name) is not array:
            self._fed[name] = array
            self._own[name] = own = np.ascontiguousarray(array).reshape(array.shape)
            self.bind_input(name, own)

    def read_device(self, name: str, array: DeviceArray) -> None:
        """Let the graph read an array of the device."""
        self._device_arrays[name] = array
        device = array.block.device
        self._binding.bind_input(
            name, device.kind, device.index, array.dtype, array.shape, array.address
        )

    def write_device(self, name: str, array: DeviceArray) -> None:
        """Let the graph write into an array of the device."""
        self._device_arrays[name] = array
        device = array.block.device
        self._binding.bind_output(
            name, device.kind, device.index, array.dtype, array.shape, array.address
        )

    def forget_device(self) -> None:
        """Hold no array of the device any more; all must be bound again before the next run."""
        self._device_arrays.clear()
