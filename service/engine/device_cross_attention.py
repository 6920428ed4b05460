"""Stage 6 of 10: what the encoder made of each source, in the memory of a device.

Two arrays, keys (L, B, H, Dh, S) and values (L, B, H, S, Dh), of exactly the sentences that are there. Sentences that
joined stay where the encoder wrote them until the next step; then they are put behind the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.engine.decoder_state import CacheShape
from service.engine.device_blocks import TwoBlocks
from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import DeviceArray, DeviceBlock

__all__ = ["DeviceBatch", "DeviceCrossAttention", "Sources"]

IntArray = NDArray[np.int64]

_SOURCE_STEP = 8
_SHRINK_BELOW = 0.75
_NONE: IntArray = np.empty(0, np.int64)


def _padded(length: int) -> int:
    """A source length rounded up, so that it changes less often."""
    return -(-length // _SOURCE_STEP) * _SOURCE_STEP


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """Sentences that went through the encoder together."""

    places: list[int]
    """Their places among all that were encoded."""
    lengths: IntArray
    """(B,) Real source tokens."""
    keys: DeviceArray
    """(L, B, H, Dh, S)"""
    values: DeviceArray
    """(L, B, H, S, Dh)"""


@dataclass(frozen=True, slots=True)
class Sources:
    """What cross-attention reads."""

    keys: DeviceArray
    """(L, B, H, Dh, S)"""
    values: DeviceArray
    """(L, B, H, S, Dh)"""
    mask: DeviceArray
    """(B, S), 1 on real source tokens."""


class DeviceCrossAttention:
    """Sentences in logical order."""

    _sources: Sources | None
    _new: list[DeviceBatch]
    _order: IntArray
    """Of each sentence, its number among those that are present and then the new ones, batch by batch."""
    _lengths: IntArray

    def __init__(self, shape: CacheShape, dtype: type[np.generic], graphs: DeviceGraphs) -> None:
        self._graphs = graphs
        self._plane_bytes = shape.num_heads * shape.head_size * np.dtype(dtype).itemsize
        self._num_layers = shape.num_layers
        self.bytes_per_position = shape.num_layers * 2 * self._plane_bytes
        """Of one sentence."""
        self._keys, self._values = TwoBlocks(graphs), TwoBlocks(graphs)
        self.reset()

    @property
    def padded_length(self) -> int:
        """S, as far as it is known before the next step."""
        longest = _padded(int(self._lengths.max(initial=0)))
        present = 0 if self._sources is None else self._sources.mask.shape[1]
        return present if self._is_settled(longest) else longest

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._keys.num_bytes + self._values.num_bytes

    @property
    def live_bytes(self) -> int:
        """Bytes of real source positions."""
        return int(self._lengths.sum()) * self.bytes_per_position

    def bytes_for(self, num_sentences: int, source_length: int) -> int:
        """Memory held, at most, for so many sentences of such a length."""
        each = num_sentences * _padded(source_length) * self._num_layers * self._plane_bytes
        return 2 * TwoBlocks.bytes_for(each)

    def admit(self, batches: list[DeviceBatch]) -> None:
        """Append sentences in the order of their places."""
        places = np.concatenate([np.array(batch.places, np.int64) for batch in batches])
        first = self._num_present + sum(len(batch.lengths) for batch in self._new)
        lengths = np.concatenate([batch.lengths for batch in batches])
        order = places.argsort()
        self._order = np.concatenate([self._order, first + order])
        self._lengths = np.concatenate([self._lengths, lengths[order]])
        self._new += batches

    def keep(self, sentences: IntArray) -> None:
        """Drop all sentences but these."""
        self._order, self._lengths = self._order[sentences], self._lengths[sentences]

    def prepare(self) -> Sources:
        """Bring sentences where they belong.

        Raises:
            EngineStepError: There is not enough memory.
        """
        longest = _padded(int(self._lengths.max()))
        if self._sources is None or not self._is_settled(longest):
            self._sources = self._settle(longest)
            self._order, self._new = np.arange(len(self._lengths)), []
        return self._sources

    def reset(self) -> None:
        """Drop all sentences and give memory back."""
        self._sources, self._new = None, []
        self._order = self._lengths = _NONE
        self._keys.release()
        self._values.release()

    @property
    def _num_present(self) -> int:
        return 0 if self._sources is None else self._sources.mask.shape[0]

    def _is_settled(self, longest: int) -> bool:
        if self._sources is None or self._new:
            return False
        present, padded = self._sources.mask.shape
        return (
            _SHRINK_BELOW * padded < longest <= padded
            and len(self._order) == present
            and bool((self._order == np.arange(present)).all())
        )

    def _settle(self, longest: int) -> Sources:
        present = [] if self._sources is None else [self._sources]
        parts: list[Sources | DeviceBatch] = [*present, *self._new]
        counts = [part.values.shape[1] for part in parts]
        orders = _orders(self._order, counts)
        flat = [_flat(part.keys) for part in parts]
        keys = self._assemble(self._keys, flat, orders, longest)
        values = self._assemble(self._values, [part.values for part in parts], orders, longest)
        layers, sentences, heads, _, head_size = values.shape
        block = DeviceBlock(self._graphs.device, 8 * sentences * longest)
        return Sources(
            keys.reshape(layers, sentences, heads, head_size, longest),
            values,
            self._graphs.mask(self._lengths, longest, block),
        )

    def _assemble(
        self, blocks: TwoBlocks, parts: list[DeviceArray], orders: list[IntArray], longest: int
    ) -> DeviceArray:
        """Put parts one behind the other, in as many runs as there are orders."""
        array, *others = parts
        for number, order in enumerate(orders):
            num_bytes = len(order) * longest * self._num_layers * self._plane_bytes
            block = blocks.next(num_bytes)
            if others:
                array = self._graphs.join(array, others[number], order, longest, block)
            else:
                array = self._graphs.select(array, order, longest, block)
        return array


def _flat(keys: DeviceArray) -> DeviceArray:
    """Keys (L, B, H, Dh, S) as an array whose positions are the fourth axis: (L, B, H Dh, S, 1)."""
    layers, sentences, heads, head_size, longest = keys.shape
    return keys.reshape(layers, sentences, heads * head_size, longest, 1)


def _orders(order: IntArray, counts: list[int]) -> list[IntArray]:
    """Cut one choice among all sentences into one for each part that joins; what nobody wants leaves at once.

    `order` [5, 0, 3] of parts of 2, 2 and 2 sentences gives [0, 3] (of 0 1 | 2 3), then [3, 0, 1] (of 0 3 | 4 5).
    """
    ends = np.cumsum(counts)
    there, orders = np.arange(counts[0]), []
    for first, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        there = np.concatenate([there, np.arange(first, end)])
        if end < ends[-1]:
            orders.append(np.flatnonzero(np.isin(there, order)))
            there = there[orders[-1]]
    place = np.full(int(ends[-1]), -1, np.int64)
    place[there] = np.arange(len(there))
    return [*orders, place[order]]
