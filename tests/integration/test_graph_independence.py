"""The graphs give a sentence the same bits alone and in any batch, at the widths that are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from export.bundle import Bundle
from export.runner import Arrays, GraphRunner
from export.signature import MIN_SOURCE_LENGTH, cross_key, cross_value
from tests.decoder_steps import PASTS, Row, random_row, read_step, step_feeds

LIMIT = 256  # of the random model
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 65, 100, 129, 200)


@pytest.fixture(scope="module", params=["float32", "int8", "int8 caches"])
def runner(request: pytest.FixtureRequest, served_bundle: Callable[[str], Bundle]) -> GraphRunner:
    return GraphRunner(served_bundle(request.param))


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


def step(runner: GraphRunner, rows: Sequence[Row], **differences: Any) -> list[bytes]:
    """Run one step; give each row's results as bytes."""
    shape, int8_caches = runner.manifest.architecture, runner.manifest.int8_caches
    feeds = step_feeds(shape, rows, int8_caches=int8_caches, **differences)
    return read_step(runner.decoder, rows, feeds)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decoder_row_depends_on_no_other_row_and_on_no_spare_room(
    runner: GraphRunner, length: int
) -> None:
    rng = np.random.default_rng(length)
    mine = random_row(runner.manifest.architecture, int(rng.choice(PASTS)), length, rng)
    (alone,) = step(runner, [mine])
    for num_others in (0, 1, 2, 5, 12, 40):
        others = [
            random_row(
                runner.manifest.architecture,
                int(rng.choice(PASTS)),
                int(rng.choice(LENGTHS[:9])),
                rng,
            )
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
    source = random_row(runner.manifest.architecture, 0, 21, rng)
    beams = [
        Row(
            token_id=beam.token_id,
            keys_values=beam.keys_values,
            cross_keys=source.cross_keys,
            cross_values=source.cross_values,
        )
        for beam in (
            random_row(runner.manifest.architecture, 12, 21, rng) for _ in range(beam_size)
        )
    ]
    alone = [step(runner, [beam])[0] for beam in beams]
    neighbour = random_row(runner.manifest.architecture, 3, 30, rng)
    together = step(runner, [neighbour, *beams], num_lanes=beam_size, sentence_sizes=[1, beam_size])
    assert together[1:] == alone


def test_the_number_of_candidates_changes_none_of_them(runner: GraphRunner) -> None:
    rng = np.random.default_rng(0)
    row = random_row(runner.manifest.architecture, 5, 9, rng)
    few = step(runner, [row], num_candidates=2)[0]
    many = step(runner, [row], num_candidates=32)[0]
    assert many[: 2 * 8] == few[: 2 * 8]
    assert many[32 * 8 : 32 * 8 + 2 * 4] == few[2 * 8 : 2 * 8 + 2 * 4]
    assert many[32 * 12 :] == few[2 * 12 :]
