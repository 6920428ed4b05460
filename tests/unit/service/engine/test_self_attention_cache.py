from __future__ import annotations

import numpy as np
import pytest

from service.engine.self_attention_cache import SelfAttentionCache


def create(rows: int = 3, positions: int = 5) -> SelfAttentionCache:
    cache = SelfAttentionCache(num_layers=2, num_heads=2, head_size=4)
    cache.fit(rows, positions, np.empty(0, np.int64))
    cache.buffer[:] = np.nan
    return cache


def write(cache: SelfAttentionCache, row: int, length: int, value: float) -> None:
    cache.buffer[:, :, row, :, :length] = value


def test_memory_grows_by_buckets() -> None:
    cache = create(rows=9, positions=33)
    assert cache.buffer.shape == (2, 2, 16, 2, 64, 4)


@pytest.mark.parametrize(("needed", "held"), [(32, 32), (65, 96), (257, 320), (512, 576)])
def test_positions_grow_by_a_quarter(needed: int, held: int) -> None:
    assert create(positions=needed).buffer.shape[4] == held


@pytest.mark.parametrize(("needed", "capacity"), [(1, 4), (12, 12), (13, 16), (65, 72), (97, 108)])
def test_many_rows_leave_no_gaps_between_their_heads(needed: int, capacity: int) -> None:
    assert create(rows=8192, positions=needed).buffer.shape == (2, 2, 8192, 2, capacity, 4)


@pytest.mark.parametrize(("rows", "positions"), [(100, 200), (4, 6), (8192, 6), (8192, 40)])
def test_every_row_keeps_its_valid_prefix_when_all_move(rows: int, positions: int) -> None:
    cache = create()
    lengths = np.array([5, 2, 0])
    for row, length in enumerate(lengths.tolist()):
        write(cache, row, length, row + 1)
    for _ in range(3):
        cache.fit(rows, positions, lengths)
        for row, length in enumerate(lengths.tolist()):
            assert (cache.buffer[:, :, row, :, :length] == row + 1).all()


def test_room_is_known() -> None:
    cache = create()
    assert cache.fits(8, 32)
    assert not cache.fits(9, 32)
    assert not cache.fits(8, 33)


def test_much_room_is_too_much_for_many_rows_only() -> None:
    cache = create(rows=8192, positions=32)
    assert cache.fits(8192, 32)
    assert cache.fits(8192, 25)
    assert not cache.fits(8192, 24)
    assert cache.fits(8, 1)


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
    assert cache.bytes_for(1, 1) == 8 * 32 * cache.bytes_per_position * 5 / 4, "with a spare plane"


def test_large_memory_is_given_back_when_there_are_no_rows() -> None:
    cache = create(rows=1024, positions=1024)
    cache.release()
    assert cache.num_bytes == 0
    cache.fit(1, 1, np.empty(0, np.int64))
    held = cache.num_bytes
    cache.release()
    assert cache.num_bytes == held > 0
