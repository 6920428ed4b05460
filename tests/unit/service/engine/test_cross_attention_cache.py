from __future__ import annotations

import numpy as np

from service.engine.cross_attention_cache import CrossAttentionCache, EncodedBatch

LAYERS, HEADS, SIZE = 2, 2, 4


def encoded(*sentences: tuple[int, float]) -> EncodedBatch:
    """Sentences of (length, value), padded with NaN as an encoder might."""
    lengths = np.array([length for length, _ in sentences])
    keys = np.full((len(sentences), HEADS, SIZE, lengths.max() + 1), np.nan, np.float32)
    for place, (length, value) in enumerate(sentences):
        keys[place, ..., :length] = value
        keys[place, ..., length:] = 0.0
    values = keys.transpose(0, 1, 3, 2)
    return EncodedBatch(list(range(len(sentences))), lengths, [keys] * LAYERS, [values] * LAYERS)


def create(*sentences: tuple[int, float]) -> CrossAttentionCache:
    cache = CrossAttentionCache(LAYERS, HEADS, SIZE)
    cache.admit(encoded(*sentences))
    return cache


def contents(cache: CrossAttentionCache, slot: int) -> tuple[int, float]:
    """(length, value) of a slot, after checking that keys, values and mask agree."""
    length = int(cache.mask[slot].sum())
    assert cache.mask[slot, :length].all()
    value = float(cache.keys[0, slot, 0, 0, 0])
    assert (cache.keys[:, slot, :, :, :length] == value).all()
    assert (cache.values[:, slot, :, :length] == value).all()
    assert np.isfinite(cache.keys[:, slot]).all()
    assert np.isfinite(cache.values[:, slot]).all()
    return length, value


def test_admitted_sentences_have_their_keys_values_and_mask() -> None:
    cache = create((5, 1.0), (3, 2.0))
    assert [contents(cache, slot) for slot in (0, 1)] == [(5, 1.0), (3, 2.0)]
    assert cache.live_bytes == 8 * cache.bytes_per_position


def test_a_longer_sentence_widens_all() -> None:
    cache = create((5, 1.0))
    assert cache.padded_length == 8
    assert cache.admit(encoded((20, 2.0))).tolist() == [1]
    assert cache.padded_length == 24
    assert [contents(cache, slot) for slot in (0, 1)] == [(5, 1.0), (20, 2.0)]


def test_padding_shrinks_when_the_longest_leaves() -> None:
    cache = create((20, 1.0), (5, 2.0))
    assert cache.keep(np.array([1])).tolist() == [0]
    assert cache.padded_length == 8
    assert contents(cache, 0) == (5, 2.0)


def test_holes_are_filled_from_the_end() -> None:
    cache = create((5, 1.0), (6, 2.0), (7, 3.0), (8, 4.0))
    slots = cache.keep(np.array([1, 3]))
    assert sorted(slots.tolist()) == [0, 1]
    assert [contents(cache, slot) for slot in slots] == [(6, 2.0), (8, 4.0)]
    assert cache.admit(encoded((4, 5.0))).tolist() == [2]
    assert contents(cache, 2) == (4, 5.0)


def test_a_slot_that_is_used_again_remembers_nothing() -> None:
    cache = create((8, 1.0), (8, 2.0))
    cache.keep(np.array([0]))
    cache.admit(encoded((3, 3.0)))
    assert contents(cache, 1) == (3, 3.0)


def test_no_sentences_hold_no_live_bytes() -> None:
    cache = create((5, 1.0))
    cache.keep(np.array([], np.int64))
    assert cache.live_bytes == 0


def test_memory_held_is_at_most_what_was_foretold() -> None:
    cache = create(*[(30, 1.0)] * 5)
    assert cache.num_bytes <= cache.bytes_for(5, 30)
    cache.keep(np.array([0]))
    cache.admit(encoded((23, 1.0)))
    assert cache.num_bytes <= cache.bytes_for(5, 30)
