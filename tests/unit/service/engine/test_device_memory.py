from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from service.engine import device_memory
from service.engine.device_memory import DeviceArray, DeviceBlock
from service.errors import EngineStepError
from tests.device_arrays import CPU, from_device, to_device


def test_a_part_is_what_lies_at_its_place() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    array = to_device(x)
    np.testing.assert_array_equal(from_device(array.part(1)), x[1])
    np.testing.assert_array_equal(from_device(array.part(1).part(2)), x[1, 2])


def test_words_are_the_same_bytes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    words = to_device(x).words()
    assert (words.dtype, words.shape) == (np.int16, (2, 6))
    assert from_device(words).tobytes() == x.tobytes()


def test_an_array_does_not_reach_beyond_its_block() -> None:
    with pytest.raises(AssertionError):
        DeviceArray(DeviceBlock(CPU, 10), np.float32, (3,))


def test_no_memory_is_a_failure_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMemory:
        @staticmethod
        def ortvalue_from_shape_and_type(*_: object) -> None:
            raise RuntimeError("Available memory of 0 is smaller than requested bytes")

    monkeypatch.setattr(ort, "OrtValue", NoMemory)
    with pytest.raises(EngineStepError, match="no 100 bytes left"):
        DeviceBlock(CPU, 100)


def test_a_block_that_a_kernel_cannot_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "MAX_BLOCK_BYTES", 100)
    DeviceBlock(CPU, 100)
    with pytest.raises(EngineStepError, match="too large"):
        DeviceBlock(CPU, 101)
