"""Arrays to and from the memory of a device that is this process's own."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.device_memory import Device, DeviceArray, DeviceBlock

CPU = Device("cpu")


def to_device(array: npt.NDArray[Any]) -> DeviceArray:
    """Copy an array into a block of its own."""
    block = DeviceBlock(CPU, array.nbytes)
    copy = DeviceArray(block, array.dtype.type, array.shape)
    ctypes.memmove(block.address, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    return copy


def from_device(array: DeviceArray) -> npt.NDArray[Any]:
    """Copy an array out of its block."""
    content = ctypes.string_at(array.address, array.num_bytes)
    return np.frombuffer(content, array.dtype).reshape(array.shape)
