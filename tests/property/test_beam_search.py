"""Beam search against oracles that are too slow to serve."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.config import SchedulerConfig
from service.driver import Driver
from service.request import FinishReason, Hypothesis, Sequence
from tests.builders import make_sequence
from tests.fakes import EOS, FakeEngine, Script, random_script

WORDS = 4
WIDE_ENOUGH = WORDS**3
"""A beam that holds every open prefix of up to three tokens."""


def translate(engine: FakeEngine, sequences: list[Sequence]) -> list[tuple[Hypothesis, ...]]:
    """Run sentences together."""
    driver = Driver(model="m", engine=engine, config=SchedulerConfig(max_batch_rows=10_000))
    for sequence in sequences:
        driver.add(sequence)
    found: dict[int, tuple[Hypothesis, ...]] = {}
    while driver.num_waiting or driver.num_running:
        for departure in driver.step().departures:
            found[departure.result.sequence_id] = departure.result.hypotheses
    assert driver.live_bytes == 0
    return [found[sequence.sequence_id] for sequence in sequences]


def every_hypothesis(
    script: Script, source: tuple[int, ...], max_length: int, alpha: float, min_tokens: int
) -> list[tuple[float, tuple[int, ...], FinishReason]]:
    """All that the model could say, with its score, best first."""
    found = []
    for length in range(max_length + 1):
        for tokens in itertools.product(range(1, WORDS), repeat=length):
            log_prob = sum(float(script(source, tokens[:i])[t]) for i, t in enumerate(tokens))
            if length == max_length:
                score = log_prob / length**alpha
                found.append((score, tokens, FinishReason.LENGTH))
            elif length + 1 >= min_tokens:
                end = float(script(source, tokens)[EOS])
                score = (log_prob + end) / (length + 1) ** alpha
                found.append((score, tokens, FinishReason.STOP))
    return sorted(found, key=lambda item: -item[0])


@given(
    seed=st.integers(0, 10_000),
    max_length=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    num_hypotheses=st.integers(1, 5),
    min_tokens=st.integers(0, 3),
)
@settings(max_examples=60)
def test_a_beam_that_holds_everything_equals_exhaustive_search(
    seed: int, max_length: int, alpha: float, num_hypotheses: int, min_tokens: int
) -> None:
    script = random_script(WORDS, seed=seed, sharpness=1.0)
    sequence = make_sequence(
        (1, 2, EOS),
        max_length=max_length,
        beam_size=WIDE_ENOUGH,
        length_penalty=alpha,
        num_hypotheses=num_hypotheses,
        min_target_tokens=min_tokens,
    )
    (answers,) = translate(FakeEngine(script, vocab_size=WORDS), [sequence])
    best = every_hypothesis(script, (1, 2, EOS), max_length, alpha, min_tokens)[:num_hypotheses]
    assert [(a.token_ids, a.finish_reason) for a in answers] == [item[1:] for item in best]
    np.testing.assert_allclose([a.score for a in answers], [item[0] for item in best], atol=1e-9)


sentences = st.lists(
    st.tuples(
        st.lists(st.integers(1, 11), max_size=5),
        st.sampled_from([1, 2, 3, 4, 8]),
        st.integers(1, 12),
        st.sampled_from([0.0, 1.0]),
    ),
    min_size=1,
    max_size=8,
)


@given(items=sentences, seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_a_batch_of_n_equals_n_batches_of_one(
    items: list[tuple[list[int], int, int, float]], seed: int
) -> None:
    engine = FakeEngine(random_script(12, seed=seed, sharpness=1.5), vocab_size=12)

    def make(item: tuple[list[int], int, int, float]) -> Sequence:
        source, beam_size, max_length, alpha = item
        return make_sequence(
            (*source, EOS),
            beam_size=beam_size,
            max_length=max_length,
            length_penalty=alpha,
            num_hypotheses=beam_size,
        )

    together = translate(engine, [make(item) for item in items])
    alone = [translate(engine, [make(item)])[0] for item in items]
    assert together == alone
