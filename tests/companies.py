"""Translating with real graphs, a sentence at a time or in any company: what tests of batch independence share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.base import Engine
from service.request import Hypothesis, Sequence
from tests.builders import make_sequence

BEAMS = (1, 2, 4, 8)


def random_sequences(vocab_size: int, count: int = 24) -> list[Sequence]:
    """Sentences of one to forty tokens, of every beam size."""
    rng = np.random.default_rng(7)
    sequences = []
    for index in range(count):
        source = rng.integers(2, vocab_size, size=rng.integers(0, 40)).tolist()
        beam_size = BEAMS[index % len(BEAMS)]
        sequences.append(
            make_sequence(
                (*source, 0),
                request_id=str(index % 5),
                beam_size=beam_size,
                num_hypotheses=beam_size,
                max_length=10 + index,
                length_penalty=[1.0, 0.6, 0.0][index % 3],
                min_target_tokens=[0, 0, 5][index % 3],
            )
        )
    return sequences


def run(
    engine: Engine,
    sequences: list[Sequence],
    *,
    per_step: int = 1000,
    drop: frozenset[int] = frozenset(),
    rows: int = 64,
) -> dict[int, tuple[Hypothesis, ...]]:
    """Translate sentences that arrive a few a step; those in `drop` are aborted in the middle."""
    config = SchedulerConfig(max_batch_rows=rows, max_encode_tokens=64)
    driver = Driver(model="m", engine=engine, config=config)
    arriving = iter(sequences)
    found: dict[int, tuple[Hypothesis, ...]] = {}
    step = 0
    while True:
        added = [sequence for _, sequence in zip(range(per_step), arriving, strict=False)]
        for sequence in added:
            driver.add(sequence)
        if not added and driver.seconds_until_step() is None:
            break
        step += 1
        if step % 3 == 0:
            for sequence_id in drop:
                driver.abort(sequence_id)
        for departure in driver.step().departures:
            found[departure.result.sequence_id] = departure.result.hypotheses
    assert (driver.num_rows, driver.live_bytes) == (0, 0)
    return found


def shuffles(sequences: list[Sequence]) -> Iterator[tuple[list[Sequence], int]]:
    """Orders of arrival, and how many arrive a step."""
    for seed, per_step in ((1, 1), (2, 2), (3, 7), (4, 1000)):
        order = np.random.default_rng(seed).permutation(len(sequences))
        yield [sequences[place] for place in order.tolist()], per_step
