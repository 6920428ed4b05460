"""Stage 6 of 10: what the encoder made of each source: projected keys and values of every decoder layer.

One slot a sentence, shared by all its rows. Slots 0 to B-1 are in use, padded to one source length S that follows the
longest sentence there is, in both directions: what is padded is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.engine.placement import inherit

__all__ = ["CrossAttentionCache", "EncodedBatch"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_LEAST_SLOTS = 4
_SOURCE_STEP = 8
_SHRINK_BELOW = 0.75


def _padded(length: int) -> int:
    """A source length rounded up, so that it changes less often."""
    return -(-length // _SOURCE_STEP) * _SOURCE_STEP


def _bucket(count: int) -> int:
    return max(_LEAST_SLOTS, 1 << (count - 1).bit_length())


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Sentences that went through the encoder together."""

    places: list[int]
    """Their places among all that were encoded."""
    lengths: IntArray
    """(B,) Real source tokens."""
    keys: list[FloatArray]
    """Of each decoder layer, (B, H, Dh, S)."""
    values: list[FloatArray]
    """Of each decoder layer, (B, H, S, Dh)."""


class CrossAttentionCache:
    """Slots of sentences.

    Attributes:
        keys: (L, B_cap, H, Dh, S).
        values: (L, B_cap, H, S, Dh).
        mask: (B_cap, S), 1 on real source tokens.
        source_lengths: (B,) by slot.
    """

    def __init__(self, num_layers: int, num_heads: int, head_size: int) -> None:
        self._sizes = (num_layers, num_heads, head_size)
        self.bytes_per_position = num_layers * 2 * num_heads * head_size * 4
        """Of one sentence."""
        self.source_lengths: IntArray = np.empty(0, np.int64)
        self._allocate(0, 0)

    @property
    def padded_length(self) -> int:
        """S."""
        return int(self.mask.shape[1])

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def live_bytes(self) -> int:
        """Bytes of real source positions."""
        return int(self.source_lengths.sum()) * self.bytes_per_position

    def bytes_for(self, num_sentences: int, source_length: int) -> int:
        """Memory held, at most, for so many sentences of such a length."""
        longest = _padded(int(source_length / _SHRINK_BELOW) + 1)
        return _bucket(num_sentences) * longest * self.bytes_per_position

    def admit(self, batch: EncodedBatch) -> IntArray:
        """Append sentences, and give their slots."""
        first = len(self.source_lengths)
        lengths = np.concatenate([self.source_lengths, batch.lengths])
        self._fit(lengths, present=first)
        slots = slice(first, len(lengths))
        longest = int(batch.lengths.max())
        for layer, (keys, values) in enumerate(zip(batch.keys, batch.values, strict=True)):
            self.keys[layer, slots, :, :, :longest] = keys[..., :longest]
            self.values[layer, slots, :, :longest] = values[:, :, :longest]
        self.mask[slots] = np.arange(self.padded_length) < batch.lengths[:, None]
        self.source_lengths = lengths
        return np.arange(first, len(lengths))

    def keep(self, slots: IntArray) -> IntArray:
        """Drop all slots but these, and give their new places."""
        placement = inherit(slots, np.zeros(len(self.source_lengths), np.int64))
        lengths = np.empty(len(slots), np.int64)
        lengths[placement.places] = self.source_lengths[slots]
        for source, destination in zip(
            placement.sources.tolist(), placement.destinations.tolist(), strict=True
        ):
            self.keys[:, destination] = self.keys[:, source]
            self.values[:, destination] = self.values[:, source]
            self.mask[destination] = self.mask[source]
        self.source_lengths = lengths
        if len(slots):
            self._fit(lengths, present=len(slots))
        return placement.places

    def _fit(self, lengths: IntArray, present: int) -> None:
        """Make room for sentences of these lengths, of which the first `present` are there."""
        slots, longest = len(lengths), _padded(int(lengths.max()))
        capacity, padded = self.mask.shape
        if slots <= capacity and _SHRINK_BELOW * padded < longest <= padded:
            return
        keys, values, mask = self.keys, self.values, self.mask
        self._allocate(_bucket(slots), longest)
        common = min(longest, padded)
        self.keys[:, :present, :, :, :common] = keys[:, :present, :, :, :common]
        self.values[:, :present, :, :common] = values[:, :present, :, :common]
        self.mask[:present, :common] = mask[:present, :common]

    def _allocate(self, slots: int, longest: int) -> None:
        num_layers, num_heads, head_size = self._sizes
        # Cleared: what the mask hides is multiplied by zero, so it must be finite.
        self.keys: FloatArray = np.zeros(
            (num_layers, slots, num_heads, head_size, longest), np.float32
        )
        self.values: FloatArray = np.zeros(
            (num_layers, slots, num_heads, longest, head_size), np.float32
        )
        self.mask: IntArray = np.zeros((slots, longest), np.int64)
