from __future__ import annotations

import numpy as np
import pytest

from service.engine.decoder_state import CacheShape
from service.engine.device_cross_attention import DeviceBatch, DeviceCrossAttention, _orders
from service.engine.device_graphs import DeviceGraphs
from tests.device_arrays import CPU, from_device, to_device

SHAPE = CacheShape(num_layers=2, num_heads=2, head_size=4, start_id=0)


@pytest.fixture(scope="module")
def graphs() -> DeviceGraphs:
    return DeviceGraphs("cpu", CPU)


def make_batches(groups: list[tuple[list[int], list[int]]]) -> list[DeviceBatch]:
    """Batches of (places, lengths); every real position holds its sentence's length, padding -1."""
    batches = []
    for places, lengths in groups:
        longest = max(lengths)
        keys = np.full((2, len(places), 2, 4, longest), -1, np.float32)
        for slot, length in enumerate(lengths):
            keys[:, slot, :, :, :length] = length
        values = np.ascontiguousarray(keys.transpose(0, 1, 2, 4, 3))
        batches.append(DeviceBatch(places, np.array(lengths), to_device(keys), to_device(values)))
    return batches


def lengths_of(cache: DeviceCrossAttention) -> list[int]:
    """What each sentence holds, after checking that keys, values and mask agree."""
    sources = cache.prepare()
    keys, values = from_device(sources.keys), from_device(sources.values)
    mask = from_device(sources.mask)
    np.testing.assert_array_equal(keys, values.transpose(0, 1, 2, 4, 3))
    for sentence, real in enumerate(mask):
        length = int(real.sum())
        assert (keys[:, sentence, :, :, :length] == length).all()
    assert cache.padded_length == mask.shape[1]
    return [int(real.sum()) for real in mask]


def test_the_example_of_the_docstring() -> None:
    found = _orders(np.array([5, 0, 3]), [2, 2, 2])
    assert [order.tolist() for order in found] == [[0, 3], [3, 0, 1]]


def test_one_part_has_one_order() -> None:
    assert [order.tolist() for order in _orders(np.array([1, 0]), [2])] == [[1, 0]]


def test_sentences_are_in_the_order_of_their_places_whatever_batch_they_were_in(
    graphs: DeviceGraphs,
) -> None:
    cache = DeviceCrossAttention(SHAPE, np.float32, graphs)
    cache.admit(make_batches([([1, 3], [9, 8]), ([0], [3]), ([2], [2])]))
    assert lengths_of(cache) == [3, 9, 2, 8]
    cache.admit(make_batches([([0], [20])]))
    assert lengths_of(cache) == [3, 9, 2, 8, 20]
    cache.keep(np.array([1, 2, 4]))
    cache.admit(make_batches([([1], [5]), ([0], [4])]))
    cache.keep(np.array([0, 1, 3, 4]))
    assert lengths_of(cache) == [9, 2, 4, 5]
    assert cache.live_bytes == (9 + 2 + 4 + 5) * 2 * 2 * 2 * 4 * 4
    assert cache.num_bytes <= cache.bytes_for(6, 20)


def test_padding_follows_the_longest_source_both_ways(graphs: DeviceGraphs) -> None:
    cache = DeviceCrossAttention(SHAPE, np.float32, graphs)
    cache.admit(make_batches([([0, 1], [40, 5])]))
    assert cache.padded_length == 40
    lengths_of(cache)
    cache.keep(np.array([1]))
    assert cache.padded_length == 8
    assert lengths_of(cache) == [5]


def test_what_does_not_change_is_not_moved(graphs: DeviceGraphs) -> None:
    cache = DeviceCrossAttention(SHAPE, np.float32, graphs)
    cache.admit(make_batches([([0, 1], [6, 5])]))
    before = cache.prepare()
    cache.keep(np.array([0, 1]))
    assert cache.prepare() is before


def test_without_sentences_no_memory_is_held(graphs: DeviceGraphs) -> None:
    cache = DeviceCrossAttention(SHAPE, np.float32, graphs)
    cache.admit(make_batches([([0, 1], [6, 5])]))
    cache.prepare()
    cache.reset()
    assert (cache.num_bytes, cache.live_bytes, cache.padded_length) == (0, 0, 0)
