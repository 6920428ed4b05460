from __future__ import annotations

import numpy as np
import pytest

from service.engine.self_attention_cache import SelfAttentionCache


def create(rows: int = 3, positions: int = 5) -> SelfAttentionCache:
    cache = SelfAttentionCache(num_layers=2, num_heads=2, head_size=4)
    cache.grow(rows, positions, np.empty(0, np.int64))
    cache.buffer[:] = np.nan
    return cache


def write(cache: SelfAttentionCache, row: int, length: int, value: float) -> None:
    cache.buffer[:, :, row, :, :length] = value


def test_capacities_grow_by_buckets() -> None:
    cache = create(rows=9, positions=33)
    assert cache.buffer.shape == (2, 2, 16, 2, 64, 4)


@pytest.mark.parametrize(("needed", "held"), [(32, 32), (65, 96), (257, 320), (512, 576)])
def test_positions_grow_by_a_quarter(needed: int, held: int) -> None:
    assert create(positions=needed).buffer.shape[4] == held


def test_growing_keeps_the_valid_prefix_of_every_row() -> None:
    cache = create()
    lengths = np.array([5, 2, 0])
    for row, length in enumerate(lengths.tolist()):
        write(cache, row, length, row + 1)
    cache.grow(100, 200, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert (cache.buffer[:, :, row, :, :length] == row + 1).all()


def test_room_is_known() -> None:
    cache = create()
    assert cache.has_room(8, 32)
    assert not cache.has_room(9, 32)
    assert not cache.has_room(8, 33)


def test_copying_touches_the_named_positions_only() -> None:
    cache = create()
    write(cache, 0, 3, 7.0)
    cache.copy(np.array([0]), np.array([2]), np.array([1]), np.array([3]))
    assert (cache.buffer[:, :, 2, :, 1:3] == 7.0).all()
    assert np.isnan(cache.buffer[:, :, 2, :, 3:]).all()
    assert np.isnan(cache.buffer[:, :, 2, :, :1]).all()


def test_memory_held_is_what_was_foretold() -> None:
    cache = create(rows=20, positions=70)
    assert cache.num_bytes == cache.bytes_for(20, 70)
    assert cache.bytes_for(1, 1) == 8 * 32 * cache.bytes_per_position


def test_large_memory_is_given_back_when_there_are_no_rows() -> None:
    cache = create(rows=1024, positions=1024)
    cache.release()
    assert cache.num_bytes == 0
    cache.grow(1, 1, np.empty(0, np.int64))
    held = cache.num_bytes
    cache.release()
    assert cache.num_bytes == held > 0
