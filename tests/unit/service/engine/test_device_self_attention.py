from __future__ import annotations

import ctypes

import numpy as np
import pytest

from service.engine.decoder_state import CacheShape
from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import DeviceArray
from service.engine.device_self_attention import DeviceSelfAttention
from tests.device_arrays import CPU, from_device, to_device

SHAPE = CacheShape(num_layers=2, num_heads=2, head_size=4, start_id=0)


@pytest.fixture(scope="module")
def graphs() -> DeviceGraphs:
    return DeviceGraphs("cpu", CPU)


def write(cache: DeviceArray, content: np.ndarray) -> None:
    """Put content of the same shape into the memory of a cache."""
    source = to_device(content.astype(np.float32))
    assert source.num_bytes == cache.num_bytes
    ctypes.memmove(cache.address, source.address, source.num_bytes)


def test_moves_add_up_until_the_next_step(graphs: DeviceGraphs) -> None:
    cache = DeviceSelfAttention(SHAPE, np.float32, graphs)
    cache.append(3)
    first = cache.prepare(1)
    assert first.shape == (4, 3, 2, 32, 4)
    content = np.random.default_rng(0).standard_normal(first.shape).astype(np.float32)
    write(first, content)
    cache.gather(np.array([2, 2, 0, 1]))
    cache.append(1)
    cache.gather(np.array([3, 0, 4, 0]))
    found = from_device(cache.prepare(2))
    np.testing.assert_array_equal(found[:, [0, 1, 3]], content[:, [1, 2, 2]])
    assert np.isfinite(found).all()


def test_rows_keep_their_past_when_there_is_room_for_more(graphs: DeviceGraphs) -> None:
    cache = DeviceSelfAttention(SHAPE, np.float32, graphs)
    cache.append(2)
    first = cache.prepare(32)
    content = np.random.default_rng(0).standard_normal(first.shape).astype(np.float32)
    write(first, content)
    longer = cache.prepare(33)
    assert longer.shape[3] == 64
    np.testing.assert_array_equal(from_device(longer)[:, :, :, :32], content)


def test_what_does_not_move_is_not_copied(graphs: DeviceGraphs) -> None:
    cache = DeviceSelfAttention(SHAPE, np.float32, graphs)
    cache.append(2)
    first = cache.prepare(1)
    cache.gather(np.array([0, 1]))
    assert cache.prepare(32) is first


def test_memory_held_is_at_most_what_was_foretold(graphs: DeviceGraphs) -> None:
    cache = DeviceSelfAttention(SHAPE, np.float16, graphs)
    rng = np.random.default_rng(0)
    cache.append(40)
    for position in range(1, 200):
        cache.prepare(position)
        cache.gather(rng.integers(0, 40, size=40))
    assert 0 < cache.num_bytes <= cache.bytes_for(40, 200)
    cache.reset()
    assert cache.num_bytes == 0
