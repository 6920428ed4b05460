"""Stage 6 of 10: two blocks of a device that a cache goes back and forth between.

A graph that moves rows cannot write where it reads, so it writes into the other block. Blocks grow by quarters of a
power of two, each when it is next written, so that memory is not taken anew at every step.
"""

from __future__ import annotations

from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import MAX_BLOCK_BYTES, DeviceBlock

__all__ = ["TwoBlocks"]

_LEAST_BYTES = 64 * 1024
_MORE_THAN_ANY_LIMIT = 2**63
"""So that the scheduler waits before so many rows run."""


def _bucket(num_bytes: int) -> int:
    """The smallest of 64 KiB x 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, ... that is enough."""
    size = _LEAST_BYTES
    while 2 * size < num_bytes:
        size *= 2
    step = size // 4
    return max(_LEAST_BYTES, -(-num_bytes // step) * step)


class TwoBlocks:
    """The block that is read, and the one that is written next."""

    def __init__(self, graphs: DeviceGraphs) -> None:
        self._graphs = graphs
        self._blocks: list[DeviceBlock | None] = [None, None]

    @staticmethod
    def bytes_for(num_bytes: int) -> int:
        """Memory held, at most, for a cache of this size; more than any limit when no block can hold it."""
        bucket = _bucket(num_bytes)
        return 2 * bucket if bucket <= MAX_BLOCK_BYTES else _MORE_THAN_ANY_LIMIT

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return sum(block.num_bytes for block in self._blocks if block is not None)

    def next(self, num_bytes: int) -> DeviceBlock:
        """Give the block to write so much into. The other one keeps what it holds until this is called again.

        Raises:
            EngineStepError: There is not enough memory.
        """
        block = self._blocks[0]
        if block is None or block.num_bytes < num_bytes:
            block = self._blocks[0] = None  # given back before more is taken
            block = self._graphs.create_block(_bucket(num_bytes))
        self._blocks = [self._blocks[1], block]
        return block

    def release(self) -> None:
        """Give all memory back."""
        self._blocks = [None, None]
