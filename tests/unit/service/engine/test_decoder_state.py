from __future__ import annotations

import numpy as np

from service.engine.cross_attention_cache import EncodedBatch
from service.engine.decoder_state import CacheShape, DecoderState
from service.rows import RowMoves

SHAPE = CacheShape(num_layers=1, num_heads=1, head_size=2, start_id=9)


def admit(state: DecoderState, *lengths: int) -> None:
    keys = np.zeros((len(lengths), 1, 2, max(lengths)), np.float32)
    batch = EncodedBatch(
        list(range(len(lengths))), np.array(lengths), [keys], [keys.transpose(0, 1, 3, 2)]
    )
    state.admit([batch])


def moves(parents: list[int], kept: list[int], counts: list[int]) -> RowMoves:
    tokens = np.arange(len(parents)) + 100
    return RowMoves(
        np.array(parents, np.int64), tokens, np.array(kept, np.int64), np.array(counts, np.int64)
    )


def test_a_sentence_begins_with_one_row_and_two_lanes() -> None:
    state = DecoderState(SHAPE)
    admit(state, 3, 5)
    inputs = state.step_inputs()
    assert inputs.input_ids.tolist() == [9, 9]
    assert inputs.past_lengths.tolist() == [0, 0]
    assert inputs.past_lengths.dtype == np.int32
    assert inputs.lane_heads.tolist() == [[[0, 0]], [[1, 1]]]
    assert inputs.row_heads.tolist() == [[0], [2]]


def test_the_example_of_the_docstring() -> None:
    state = DecoderState(SHAPE)
    admit(state, 3)
    state.step_inputs()
    state.note_step()
    state.gather(moves([0, 0], [0], [2]))
    state.gather(moves([1, 0], [0], [2]))
    admit(state, 4)
    assert state.places.tolist() == [1, 0, 2]
    inputs = state.step_inputs()
    assert inputs.lane_heads.tolist() == [[[1, 0]], [[2, 2]]]
    assert inputs.row_heads.tolist() == [[1], [0], [2]]
    assert inputs.row_slots.tolist() == [0, 0, 1]
    assert inputs.input_ids.tolist() == [101, 100, 9]
    assert inputs.past_lengths.tolist() == [1, 1, 0]


def test_rows_that_leave_take_their_bytes_with_them() -> None:
    state = DecoderState(SHAPE)
    admit(state, 3, 5)
    state.step_inputs()
    state.note_step()
    before = state.live_bytes
    state.gather(moves([1], [1], [1]))
    assert state.live_bytes == before - (3 + 1) * 2 * 2 * 4
    state.gather(moves([], [], []))
    assert (state.live_bytes, state.longest_source, state.num_rows) == (0, 0, 0)
    assert state.reserved_bytes > 0
