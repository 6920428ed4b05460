"""The graphs give a sentence the same bits alone and in any batch, at the widths that are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from export.bundle import Bundle, Precision
from export.runner import Arrays, GraphRunner
from export.signature import (
    CANDIDATE_IDS,
    CANDIDATE_LOG_PROBS,
    EDIT_BIASES,
    EDIT_POSITIONS,
    EDIT_SCALES,
    ENCODER_MASK,
    INPUT_IDS,
    LANE_ROWS,
    LOG_PROB_ROWS,
    LOG_PROBS,
    MIN_CAPACITY,
    MIN_LANES,
    MIN_SOURCE_LENGTH,
    NUM_CANDIDATES,
    PAST_LENGTHS,
    ROW_LANES,
    TOTAL_LENGTH,
    cross_key,
    cross_value,
    past_self_key,
    past_self_value,
    present_self_key,
    present_self_value,
)

LIMIT = 256  # of the random model
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 65, 100, 129, 200)


@pytest.fixture(scope="module", params=["float32", "int8"])
def runner(
    request: pytest.FixtureRequest, random_bundle: Callable[[Precision], Bundle]
) -> GraphRunner:
    return GraphRunner(random_bundle(request.param))


def random_source(runner: GraphRunner, length: int, rng: np.random.Generator) -> list[int]:
    return rng.integers(3, runner.manifest.architecture.vocab_size, length).tolist()


def encoded_bits(runner: GraphRunner, memory: Arrays, row: int, length: int) -> bytes:
    layers = range(runner.manifest.architecture.num_decoder_layers)
    keys = [memory[cross_key(i)][row, :, :, :length] for i in layers]
    values = [memory[cross_value(i)][row, :, :length] for i in layers]
    return b"".join(part.tobytes() for part in (*keys, *values))


@pytest.mark.parametrize("length", LENGTHS)
def test_an_encoded_sentence_depends_on_no_other_and_on_no_padding(
    runner: GraphRunner, length: int
) -> None:
    rng = np.random.default_rng(length)
    source = random_source(runner, length, rng)
    alone = encoded_bits(runner, runner.encode([source]), 0, length)
    for padding in (0, 1, 6, 17, 60):
        longest = max(min(length + padding, LIMIT), MIN_SOURCE_LENGTH)
        for others in ((), (3,), (longest, 1, longest // 2 + 1)):
            sources = [random_source(runner, min(n, longest), rng) for n in others]
            sources.insert(len(others) // 2, source)
            memory = runner.encode(sources, min_length=longest)
            assert encoded_bits(runner, memory, len(others) // 2, length) == alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one decoder row brings into a step."""

    token_id: int
    keys_values: Sequence[
        npt.NDArray[np.float32]
    ]  # (H, past, Dh) for keys and values of each layer
    cross_keys: Sequence[npt.NDArray[np.float32]]  # (H, Dh, S)
    cross_values: Sequence[npt.NDArray[np.float32]]  # (H, S, Dh)


def random_row(runner: GraphRunner, past: int, length: int, rng: np.random.Generator) -> Row:
    shape = runner.manifest.architecture
    layers, heads, size = shape.num_decoder_layers, shape.num_heads, shape.head_size

    def normal(*axes: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal(axes, np.float32)

    return Row(
        token_id=int(rng.integers(3, shape.vocab_size)),
        keys_values=[normal(heads, past, size) for _ in range(2 * layers)],
        cross_keys=[3 * normal(heads, size, length) for _ in range(layers)],
        cross_values=[normal(heads, length, size) for _ in range(layers)],
    )


def step(  # noqa: PLR0913 - all that a batch may differ in
    runner: GraphRunner,
    rows: Sequence[Row],
    *,
    spare_source: int = 0,
    spare_capacity: int = 0,
    num_lanes: int = MIN_LANES,
    sentence_sizes: Sequence[int] | None = None,
    num_candidates: int = 8,
) -> list[bytes]:
    """Run one step; whatever no row owns is filled with large numbers. Give each row's results as bytes."""
    sizes = sentence_sizes or [1] * len(rows)  # rows of one sentence share the sources of its first
    firsts = np.cumsum([0, *sizes[:-1]])
    shape = runner.manifest.architecture
    past = [row.keys_values[0].shape[1] for row in rows]
    lengths = [rows[first].cross_keys[0].shape[2] for first in firsts]
    capacity = max(MIN_CAPACITY, max(past) + 1 + spare_capacity)
    longest = max(MIN_SOURCE_LENGTH, max(lengths) + spare_source)
    lanes = np.array(
        [
            [first + lane % size for lane in range(num_lanes)]
            for first, size in zip(firsts, sizes, strict=True)
        ]
    )
    feeds: dict[str, Any] = {
        INPUT_IDS: np.array([row.token_id for row in rows]),
        PAST_LENGTHS: np.array(past, np.int32),
        TOTAL_LENGTH: np.array(capacity, np.int32),
        ENCODER_MASK: (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64),
        LANE_ROWS: lanes,
        ROW_LANES: np.concatenate(
            [s * num_lanes + np.arange(size) for s, size in enumerate(sizes)]
        ),
        NUM_CANDIDATES: np.array([num_candidates]),
        EDIT_POSITIONS: np.zeros((0, 2), np.int64),
        EDIT_SCALES: np.zeros(0, np.float32),
        EDIT_BIASES: np.zeros(0, np.float32),
        LOG_PROB_ROWS: np.arange(len(rows)),
    }
    heads, size = shape.num_heads, shape.head_size
    layers = range(shape.num_decoder_layers)
    for layer in layers:
        for part, name in enumerate((past_self_key(layer), past_self_value(layer))):
            cache = np.full((len(rows), heads, capacity, size), 50.0, np.float32)
            for row, length, slot in zip(rows, past, cache, strict=True):
                slot[:, :length] = row.keys_values[2 * layer + part]
            feeds[name] = cache
        keys = np.full((len(sizes), heads, size, longest), 50.0, np.float32)
        values = np.full((len(sizes), heads, longest, size), 50.0, np.float32)
        for sentence, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
            keys[sentence, :, :, :length] = rows[first].cross_keys[layer]
            values[sentence, :, :length] = rows[first].cross_values[layer]
        feeds[cross_key(layer)], feeds[cross_value(layer)] = keys, values
    presents = [name(i) for i in layers for name in (present_self_key, present_self_value)]
    outputs = runner.decoder.run([CANDIDATE_IDS, CANDIDATE_LOG_PROBS, LOG_PROBS, *presents], feeds)
    return [
        b"".join(output[row].tobytes() for output in outputs[:3])
        + b"".join(cache[row][:, : past[row] + 1].tobytes() for cache in outputs[3:])
        for row in range(len(rows))
    ]


PASTS = (0, 1, 7, 8, 15, 31, 33, 64, 100)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decoder_row_depends_on_no_other_row_and_on_no_spare_room(
    runner: GraphRunner, length: int
) -> None:
    rng = np.random.default_rng(length)
    mine = random_row(runner, int(rng.choice(PASTS)), length, rng)
    (alone,) = step(runner, [mine])
    for num_others in (0, 1, 2, 5, 12, 40):
        others = [
            random_row(runner, int(rng.choice(PASTS)), int(rng.choice(LENGTHS[:9])), rng)
            for _ in range(num_others)
        ]
        place = int(rng.integers(0, num_others + 1))
        others.insert(place, mine)
        results = step(
            runner,
            others,
            spare_source=int(rng.choice([0, 1, 5, 40])),
            spare_capacity=int(rng.choice([0, 1, 30])),
            num_lanes=int(rng.choice([2, 3, 4, 8, 16])),
        )
        assert results[place] == alone


@pytest.mark.parametrize("beam_size", [2, 3, 4, 8, 16])
def test_rows_of_one_sentence_do_not_touch_each_other(runner: GraphRunner, beam_size: int) -> None:
    rng = np.random.default_rng(beam_size)
    source = random_row(runner, 0, 21, rng)
    beams = [
        Row(
            token_id=beam.token_id,
            keys_values=beam.keys_values,
            cross_keys=source.cross_keys,
            cross_values=source.cross_values,
        )
        for beam in (random_row(runner, 12, 21, rng) for _ in range(beam_size))
    ]
    alone = [step(runner, [beam])[0] for beam in beams]
    neighbour = random_row(runner, 3, 30, rng)
    together = step(runner, [neighbour, *beams], num_lanes=beam_size, sentence_sizes=[1, beam_size])
    assert together[1:] == alone


def test_the_number_of_candidates_changes_none_of_them(runner: GraphRunner) -> None:
    rng = np.random.default_rng(0)
    row = random_row(runner, 5, 9, rng)
    few = step(runner, [row], num_candidates=2)[0]
    many = step(runner, [row], num_candidates=32)[0]
    assert many[: 2 * 8] == few[: 2 * 8]
    assert many[32 * 8 : 32 * 8 + 2 * 4] == few[2 * 8 : 2 * 8 + 2 * 4]
    assert many[32 * 12 :] == few[2 * 12 :]
