from __future__ import annotations

import itertools

import numpy as np
import pytest

from service.config import SchedulerConfig
from service.engine.device_blocks import TwoBlocks
from service.engine.device_graphs import DeviceGraphs
from tests.device_arrays import CPU


@pytest.fixture(scope="module")
def graphs() -> DeviceGraphs:
    return DeviceGraphs("cpu", CPU)


def test_blocks_take_turns(graphs: DeviceGraphs) -> None:
    blocks = TwoBlocks(graphs)
    first, second = blocks.next(100), blocks.next(100)
    assert first is not second
    assert [blocks.next(100), blocks.next(100)] == [first, second]


def test_the_block_that_is_read_stays_while_the_other_grows(graphs: DeviceGraphs) -> None:
    blocks = TwoBlocks(graphs)
    blocks.next(100)
    read = blocks.next(100)
    written = blocks.next(1_000_000)
    assert written.num_bytes >= 1_000_000
    assert blocks.num_bytes == read.num_bytes + written.num_bytes
    assert blocks.next(100) is read


def test_no_more_is_held_than_was_foretold_and_little_more_than_is_needed(
    graphs: DeviceGraphs,
) -> None:
    rng = np.random.default_rng(0)
    blocks = TwoBlocks(graphs)
    most = 0
    for size in rng.integers(1, 3_000_000, 50).tolist():
        most = max(most, size)
        blocks.next(size)
        assert blocks.num_bytes <= TwoBlocks.bytes_for(most)
        assert TwoBlocks.bytes_for(size) <= 2 * max(65536, 1.25 * size + 2)
    blocks.release()
    assert blocks.num_bytes == 0


def test_what_no_block_can_hold_is_beyond_any_limit() -> None:
    most = SchedulerConfig(max_cache_bytes=2**62).max_cache_bytes
    assert TwoBlocks.bytes_for(2**31) < most < TwoBlocks.bytes_for(2**32)


def test_more_needs_no_less() -> None:
    sizes = [TwoBlocks.bytes_for(size) for size in range(1, 1_000_000, 997)]
    assert all(one <= other for one, other in itertools.pairwise(sizes))
