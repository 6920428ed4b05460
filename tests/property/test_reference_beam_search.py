"""Reference beam search against exhaustive search on a vocabulary of four words."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.generate import Hypothesis, SearchOptions, beam_search
from model.transformer import Transformer
from tests.tiny_models import make_model

EOS = 0
WORDS = (1, 2, 3)
SOURCE = [1, 3, 2, EOS]
MAX_LENGTH = 4


def _four_word_model(seed: int, spread: float) -> Transformer:
    return make_model(
        seed=seed,
        spread=spread,
        source_vocab_size=4,
        target_vocab_size=4,
        pad_id=EOS,
        eos_id=EOS,
        start_from_zero_embedding=True,
    )


@torch.no_grad()
def _exhaustive(model: Transformer, alpha: float) -> list[tuple[float, tuple[int, ...], bool]]:
    """Score every target of at most MAX_LENGTH tokens: one pass over all of full length has all prefixes in it."""
    full = list(itertools.product(WORDS, repeat=MAX_LENGTH))
    targets = torch.tensor(full)
    source = torch.tensor([SOURCE] * len(full))
    logits = model(source, torch.ones_like(source, dtype=torch.bool), model.shift_right(targets))
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    scores: dict[tuple[int, ...], tuple[float, bool]] = {}
    for row, words in enumerate(full):
        total = 0.0
        for place, word in enumerate(words):
            ended = total + float(log_probs[row, place, EOS])
            scores[words[:place]] = (ended / (place + 1) ** alpha, False)
            total += float(log_probs[row, place, word])
        scores[words] = (total / MAX_LENGTH**alpha, True)
    return sorted(((s, words, cut) for words, (s, cut) in scores.items()), reverse=True)


def _search(model: Transformer, *, beam_size: int, n: int, alpha: float) -> list[Hypothesis]:
    options = SearchOptions(
        beam_size=beam_size,
        num_hypotheses=n,
        length_penalty=alpha,
        max_target_tokens=MAX_LENGTH,
    )
    return beam_search(model, SOURCE, options)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    spread=st.floats(0.5, 8.0),
    alpha=st.floats(0.0, 1.5),
    n=st.integers(1, 10),
)
def test_beam_that_holds_everything_finds_the_true_n_best(
    seed: int, spread: float, alpha: float, n: int
) -> None:
    model = _four_word_model(seed, spread)
    truth = _exhaustive(model, alpha)
    answers = _search(model, beam_size=128, n=n, alpha=alpha)
    assert [a.score for a in answers] == pytest.approx([s for s, _, _ in truth[:n]], abs=1e-5)
    known = {(words, cut): s for s, words, cut in truth}
    for answer in answers:
        assert answer.score == pytest.approx(known[answer.token_ids, answer.truncated], abs=1e-5)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    spread=st.floats(0.5, 8.0),
    alpha=st.floats(0.0, 1.5),
    beam_size=st.integers(1, 5),
)
def test_narrow_beam_reports_true_scores_and_never_beats_the_best(
    seed: int, spread: float, alpha: float, beam_size: int
) -> None:
    model = _four_word_model(seed, spread)
    truth = _exhaustive(model, alpha)
    known = {(words, cut): s for s, words, cut in truth}
    answers = _search(model, beam_size=beam_size, n=beam_size, alpha=alpha)
    assert answers
    assert len({answer.token_ids for answer in answers}) == len(answers)
    for answer in answers:
        assert answer.score == pytest.approx(known[answer.token_ids, answer.truncated], abs=1e-5)
        assert answer.score <= truth[0][0] + 1e-5
