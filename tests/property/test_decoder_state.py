"""The algebra of `DecoderState.gather`, against rows that are plain Python values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.cross_attention_cache import EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState
from service.rows import RowMoves

SHAPE = CacheShape(num_layers=2, num_heads=2, head_size=4, start_id=99)


@dataclass(frozen=True)
class Row:
    """What a row must hold: its source, its cached tokens, its next input."""

    source: tuple[int, ...]
    cached: tuple[int, ...]
    next_token: int


def admit(state: DecoderState, sources: list[tuple[int, ...]]) -> None:
    """Admit sources in two batches, the longest first, as an encoder would."""
    order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
    batches = []
    for places in (order[: len(order) // 2], order[len(order) // 2 :]):
        if places:
            lengths = np.array([len(sources[place]) for place in places])
            keys = np.zeros((len(places), 2, 4, lengths.max()), np.float32)
            for index, place in enumerate(places):
                keys[index, :, :, : lengths[index]] = sources[place]
            values = keys.transpose(0, 1, 3, 2)
            batches.append(EncodedBatch(places, lengths, [keys, keys], [values, values]))
    state.admit(batches)


def run_graph(state: DecoderState) -> None:
    """Do what the decoder graph does to the caches: write each row's input at its position."""
    inputs = state.step_inputs()
    buffer = state.self_attention.buffer
    for place in range(state.num_rows):
        buffer[:, :, place, :, inputs.past_lengths[place]] = inputs.input_ids[place]
    state.note_step()


def read(state: DecoderState) -> list[Row]:
    """Rows as the decoder graph would see them."""
    inputs = state.step_inputs()
    num_sentences, num_heads, num_lanes = inputs.lane_heads.shape
    assert num_lanes >= 2
    assert (num_sentences, num_heads) == (state.num_sentences, SHAPE.num_heads)
    assert inputs.lane_heads.min(initial=0) >= 0
    assert (inputs.lane_heads < state.num_rows * num_heads).all()
    rows = []
    for place in state.places.tolist():
        slot = int(inputs.row_slots[place])
        heads = inputs.lane_heads.ravel()[inputs.row_heads[place]]
        assert heads.tolist() == [place * num_heads + head for head in range(num_heads)]
        lanes = inputs.row_heads[place] - (slot * num_heads + np.arange(num_heads)) * num_lanes
        assert ((lanes >= 0) & (lanes < num_lanes)).all()
        length = int(inputs.past_lengths[place])
        cached = state.self_attention.buffer[:, :, place, :, :length]
        assert (cached == cached[:1, :1, :1, :, :1]).all()
        mask = state.cross_attention.mask[slot]
        keys = state.cross_attention.keys[:, slot][:, :, :, mask == 1]
        values = state.cross_attention.values[:, slot][:, :, mask == 1]
        assert (keys == values.transpose(0, 1, 3, 2)).all()
        rows.append(
            Row(
                tuple(keys[0, 0, 0].astype(int).tolist()),
                tuple(cached[0, 0, 0, :, 0].astype(int).tolist()),
                int(inputs.input_ids[place]),
            )
        )
    return rows


def random_moves(counts: list[int], rng: np.random.Generator) -> RowMoves:
    """Now and then some sentences leave; the rows of each other continue random rows of it."""
    is_exchange = rng.random() < 0.5
    kept = [place for place in range(len(counts)) if is_exchange or rng.random() < 0.75]
    firsts = np.cumsum([0, *counts])
    new_counts = counts if is_exchange else [int(rng.integers(1, 6)) for _ in kept]
    parents = [
        firsts[place] + rng.integers(0, counts[place], size=count)
        for place, count in zip(kept, new_counts, strict=True)
    ]
    rows = np.concatenate(parents) if parents else np.empty(0, np.int64)
    return RowMoves(
        rows.astype(np.int64),
        rng.integers(1, 90, size=len(rows)),
        np.array(kept, np.int64),
        np.array(new_counts, np.int64),
    )


def moved(rows: list[Row], moves: RowMoves) -> list[Row]:
    return [
        Row(rows[parent].source, rows[parent].cached, token)
        for parent, token in zip(moves.parent_rows.tolist(), moves.token_ids.tolist(), strict=True)
    ]


def random_sources(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    return [tuple(rng.integers(1, 90, size=rng.integers(1, 30)).tolist()) for _ in range(count)]


@given(seed=st.integers(0, 100_000), num_steps=st.integers(1, 45), int8_caches=st.booleans())
@settings(max_examples=60)
def test_rows_hold_what_they_must_whoever_joins_moves_or_leaves(
    seed: int, num_steps: int, int8_caches: bool
) -> None:
    rng = np.random.default_rng(seed)
    state = DecoderState(replace(SHAPE, int8_caches=int8_caches))
    rows: list[Row] = []
    counts: list[int] = []
    for _ in range(num_steps):
        sources = random_sources(rng, int(rng.integers(0, 4)))
        if sources:
            admit(state, sources)
            rows += [Row(source, (), SHAPE.start_id) for source in sources]
            counts += [1] * len(sources)
        if not rows:
            continue
        assert read(state) == rows
        run_graph(state)
        rows = [Row(row.source, (*row.cached, row.next_token), row.next_token) for row in rows]
        moves = random_moves(counts, rng)
        state.gather(moves)
        rows, counts = moved(rows, moves), moves.row_counts.tolist()
        positions = sum(len(row.cached) for row in rows)
        sentences = sum(len(row.source) for row in first_rows(rows, counts))
        own_bytes, bytes_each = positions * (1 if int8_caches else 4), 2 * 2 * 2 * 4
        assert state.live_bytes == (own_bytes + sentences * 4) * bytes_each
    state.reset()
    assert (state.num_rows, state.num_sentences, state.live_bytes) == (0, 0, 0)


def first_rows(rows: list[Row], counts: list[int]) -> list[Row]:
    return [rows[first] for first in (np.cumsum(counts) - counts).tolist()] if counts else []


@given(seed=st.integers(0, 100_000))
@settings(max_examples=60)
def test_two_gathers_equal_one_of_their_composition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    twice, once = DecoderState(SHAPE), DecoderState(SHAPE)
    sources = random_sources(rng, 4)
    for state in (twice, once):
        admit(state, sources)
        run_graph(state)
    first = random_moves([1] * 4, rng)
    second = random_moves(first.row_counts.tolist(), rng)
    twice.gather(first)
    twice.gather(second)
    once.gather(
        RowMoves(
            first.parent_rows[second.parent_rows],
            second.token_ids,
            first.kept_sentences[second.kept_sentences],
            second.row_counts,
        )
    )
    if second.parent_rows.size:
        assert read(twice) == read(once)
    assert twice.num_rows == once.num_rows == len(second.parent_rows)
    assert twice.live_bytes == once.live_bytes
