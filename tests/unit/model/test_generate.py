from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from model.generate import (
    Hypothesis,
    SearchOptions,
    beam_search,
    create_translate,
    greedy,
    greedy_batch,
    sample,
    score,
)
from model.sampling import SamplingOptions, sampling_distribution
from model.transformer import Transformer
from tests.tiny_models import SENTENCES, make_config, make_model, make_tokenizer

EOS, A, B, C = 0, 1, 2, 3
SOURCES = [[5, 6, 7, 2], [8, 2], [4, 9, 10, 11, 3, 2], [2]]

Probabilities = tuple[float, float, float, float]
ENDS: Probabilities = (0.97, 0.01, 0.01, 0.01)
GOES_ON: Probabilities = (0.01, 0.97, 0.01, 0.01)


@dataclass
class _Prefixes:
    """A cache that remembers the tokens that each row has read, BOS first."""

    rows: list[tuple[int, ...]]

    def gather(self, rows: Tensor) -> _Prefixes:
        return _Prefixes([self.rows[row] for row in rows.tolist()])


class _ScriptedModel(nn.Module):
    """Its probabilities of (EOS, A, B, C) are written down for each prefix."""

    def __init__(self, script: dict[tuple[int, ...], Probabilities], rest: Probabilities) -> None:
        super().__init__()
        self.script = script
        self.rest = rest
        self.weight = nn.Parameter(torch.zeros(1))
        self.config = make_config(source_vocab_size=4, target_vocab_size=4, eos_id=EOS, pad_id=EOS)

    def encode(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        return source_ids

    def start_cache(self, memory: Tensor, source_mask: Tensor) -> _Prefixes:
        return _Prefixes([()] * len(memory))

    def decode_step(self, token_ids: Tensor, cache: _Prefixes) -> tuple[Tensor, _Prefixes]:
        tokens = token_ids.tolist()
        rows = [(*past, token) for past, token in zip(cache.rows, tokens, strict=True)]
        table = [self.script.get(row[1:], self.rest) for row in rows]
        return torch.tensor(table, dtype=torch.float64).log(), _Prefixes(rows)


def _search(
    script: dict[tuple[int, ...], Probabilities], *, rest: Probabilities = ENDS, **fields: Any
) -> list[Hypothesis]:
    model = cast(Transformer, _ScriptedModel(script, rest))
    options = SearchOptions(**{"max_target_tokens": 4, "length_penalty": 0.0, **fields})
    return beam_search(model, [A, EOS], options)


def test_eos_among_the_first_k_candidates_finishes() -> None:
    script = {(): (0.3, 0.5, 0.15, 0.05)}
    best, second = _search(script, beam_size=2, num_hypotheses=2)
    assert (best.token_ids, second.token_ids) == ((A,), ())
    assert best.log_prob == pytest.approx(math.log(0.5 * 0.97))
    assert second.log_prob == pytest.approx(math.log(0.3))


def test_eos_behind_the_first_k_candidates_does_not_finish() -> None:
    script = {(): (0.2, 0.4, 0.3, 0.1), (A,): (0.4, 0.2, 0.2, 0.2), (B,): (0.4, 0.2, 0.2, 0.2)}
    answers = _search(script, beam_size=2, num_hypotheses=2)
    assert [answer.token_ids for answer in answers] == [(A,), (B,)]


def test_k_hypotheses_stay_open_beside_the_finished() -> None:
    # Were a finished hypothesis to take a place in the beam, B would be lost at the first step.
    script = {(): (0.4, 0.3, 0.2, 0.1), (A,): (0.25, 0.25, 0.25, 0.25)}
    answers = _search(script, beam_size=2, num_hypotheses=2)
    assert [answer.token_ids for answer in answers] == [(), (B,)]


LATE_WINNER: dict[tuple[int, ...], Probabilities] = {
    (): (0.5, 0.4, 0.05, 0.05),
    (A,): (0.05, 0.05, 0.9, 0.0),
    (A, B): (0.05, 0.05, 0.0, 0.9),
    (A, B, C): (0.9, 0.1, 0.0, 0.0),
}


def test_search_goes_on_while_an_open_hypothesis_can_still_win() -> None:
    (best,) = _search(LATE_WINNER, beam_size=2, length_penalty=1.0)
    assert best.token_ids == (A, B, C)
    assert best.score == pytest.approx(math.log(0.4 * 0.9**3) / 4)
    assert not best.truncated


def test_beam_of_1_ends_at_the_first_eos_whatever_could_follow() -> None:
    (best,) = _search(LATE_WINNER, beam_size=1, length_penalty=1.0)
    assert best.token_ids == ()


def test_without_length_penalty_the_likelier_target_wins() -> None:
    (best,) = _search(LATE_WINNER, beam_size=2, length_penalty=0.0)
    assert best.token_ids == ()
    assert best.score == best.log_prob == pytest.approx(math.log(0.5))


def test_open_hypotheses_finish_truncated_at_the_limit() -> None:
    answers = _search({}, rest=GOES_ON, beam_size=2, num_hypotheses=2, length_penalty=1.0)
    assert answers[0].token_ids == (A, A, A, A)
    assert answers[0].truncated
    assert answers[0].score == pytest.approx(math.log(0.97))


def test_limit_of_a_sentence_grows_with_its_source() -> None:
    (best,) = _search({}, rest=GOES_ON, beam_size=2, max_target_tokens=512)
    assert len(best.token_ids) == 2 * 2 + 10
    assert best.truncated
    assert SearchOptions(max_target_tokens=20).max_length(50) == 20


def test_eos_waits_for_the_shortest_length_that_is_allowed() -> None:
    for beam_size in (1, 2):
        (best,) = _search({}, beam_size=beam_size, min_target_tokens=3)
        assert len(best.token_ids) + 1 == 3
        assert not best.truncated


def test_suppressed_tokens_never_appear() -> None:
    script = {(): (0.05, 0.7, 0.2, 0.05)}
    (best,) = _search(script, beam_size=2, suppressed_ids=(A,))
    assert best.token_ids == (B,)
    assert best.log_prob == pytest.approx(math.log(0.2 / 0.3 * 0.97 / 0.99))


def test_a_score_among_the_allowed_tokens_is_recomputed() -> None:
    model = make_model(spread=2.0)
    (best,) = beam_search(
        model, SOURCES[0], SearchOptions(suppressed_ids=(A,), max_target_tokens=6)
    )
    target = best.token_ids if best.truncated else (*best.token_ids, model.config.eos_id)
    recomputed = score(model, SOURCES[0], target, suppressed_ids=(A,))
    assert best.log_prob == pytest.approx(sum(recomputed))
    assert best.log_prob != pytest.approx(sum(score(model, SOURCES[0], target)))


def test_of_equal_candidates_the_smaller_id_comes_first() -> None:
    script = {(): (0.1, 0.3, 0.3, 0.3)}
    answers = _search(script, beam_size=3, num_hypotheses=3)
    assert [answer.token_ids for answer in answers] == [(A,), (B,), (C,)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beam_of_1_equals_greedy(source: list[int], length_penalty: float) -> None:
    for seed in range(5):
        model = make_model(seed=seed, spread=3.0)
        options = SearchOptions(beam_size=1, length_penalty=length_penalty)
        (best,) = beam_search(model, source, options)
        found = greedy(model, source, options)
        assert best.token_ids == found.token_ids
        assert best.score == pytest.approx(found.score)


@pytest.mark.parametrize("beam_size", [1, 3, 5])
def test_reported_scores_equal_recomputed_ones(beam_size: int) -> None:
    model = make_model(spread=2.0)
    options = SearchOptions(
        beam_size=beam_size, num_hypotheses=beam_size, length_penalty=0.7, max_target_tokens=8
    )
    for source in SOURCES:
        answers = beam_search(model, source, options)
        assert len(answers) == len({answer.token_ids for answer in answers}) == beam_size
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        for answer in answers:
            ending = () if answer.truncated else (model.config.eos_id,)
            target = [*answer.token_ids, *ending]
            log_prob = sum(score(model, source, target))
            assert answer.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert answer.score == pytest.approx(log_prob / len(target) ** 0.7, abs=1e-4)


def test_greedy_in_a_batch_equals_greedy_alone() -> None:
    model = make_model(spread=2.0)
    options = SearchOptions(max_target_tokens=20)
    together = greedy_batch(model, SOURCES, options)
    alone = [greedy(model, source, options) for source in SOURCES]
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]
    assert [a.score for a in together] == pytest.approx([a.score for a in alone], abs=1e-5)
    assert len({len(answer.token_ids) for answer in together}) > 1


def test_greedy_takes_the_best_token_of_each_step() -> None:
    model = make_model(spread=2.0)
    answer = greedy(model, SOURCES[0], SearchOptions(max_target_tokens=6))
    source = torch.tensor([SOURCES[0]])
    target = torch.tensor([[*answer.token_ids, model.config.eos_id]])
    with torch.no_grad():
        logits = model(source, torch.ones_like(source, dtype=torch.bool), model.shift_right(target))
    assert logits.argmax(-1)[0, : len(answer.token_ids)].tolist() == list(answer.token_ids)


def test_seed_decides_a_sample() -> None:
    model = make_model()
    options = SearchOptions(max_target_tokens=12)
    draws = [
        sample(model, SOURCES[0], options, SamplingOptions(seed=seed)).token_ids
        for seed in (1, 1, 2, 3)
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_score_of_a_sample_is_the_models_own() -> None:
    model = make_model()
    drawn = sample(
        model,
        SOURCES[0],
        SearchOptions(max_target_tokens=12),
        SamplingOptions(temperature=2.0, top_k=5, seed=4),
    )
    ending = [] if drawn.truncated else [model.config.eos_id]
    log_prob = sum(score(model, SOURCES[0], [*drawn.token_ids, *ending]))
    assert drawn.log_prob == pytest.approx(log_prob, abs=1e-4)


def test_sampling_from_one_token_is_greedy() -> None:
    model = make_model(spread=2.0)
    options = SearchOptions(max_target_tokens=12)
    best = greedy(model, SOURCES[0], options)
    for sampling in (SamplingOptions(top_k=1), SamplingOptions(top_p=1e-9)):
        assert sample(model, SOURCES[0], options, sampling).token_ids == best.token_ids


LOG_PROBS = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingOptions(), [0.1, 0.4, 0.2, 0.3]),
        (SamplingOptions(top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (SamplingOptions(top_p=0.39), [0, 1, 0, 0]),
        (SamplingOptions(top_p=0.71), [0, 4 / 9, 2 / 9, 3 / 9]),
        (SamplingOptions(temperature=0.5), [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        (SamplingOptions(top_k=3, top_p=0.5), [0, 4 / 7, 0, 3 / 7]),
    ],
)
def test_sampling_keeps_the_likely_tokens(sampling: SamplingOptions, expected: list[float]) -> None:
    assert sampling_distribution(LOG_PROBS, sampling).tolist() == pytest.approx(expected)


def test_draws_follow_the_distribution() -> None:
    model = cast(Transformer, _ScriptedModel({(): (0.1, 0.6, 0.3, 0.0)}, ENDS))
    options = SearchOptions(max_target_tokens=1)
    firsts = [
        sample(model, [A, EOS], options, SamplingOptions(seed=seed)).token_ids
        for seed in range(400)
    ]
    assert firsts.count((A,)) / 400 == pytest.approx(0.6, abs=0.08)
    assert firsts.count(()) / 400 == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_translate_keeps_order_and_empty_texts(beam_size: int) -> None:
    tokenizer = make_tokenizer()
    sizes = tokenizer.vocab_size
    model = make_model(source_vocab_size=sizes, target_vocab_size=sizes, spread=2.0)
    options = SearchOptions(beam_size=beam_size, max_target_tokens=6)
    translate = create_translate(model, tokenizer, options, batch_size=2)
    texts = [SENTENCES[0], "", "a cat", "  ", SENTENCES[1]]
    answers = translate(texts)
    assert answers[1] == answers[3] == ""
    assert answers == [translate([text])[0] for text in texts]
    assert translate([]) == []


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: SearchOptions(beam_size=0), "`beam_size` must be at least 1, but is 0"),
        (lambda: SearchOptions(num_hypotheses=5), r"in \[1, 4\], but is 5"),
        (lambda: SearchOptions(length_penalty=-1.0), "`length_penalty` must be at least 0"),
        (lambda: SamplingOptions(temperature=0.0), "`temperature` must be above 0"),
        (lambda: SamplingOptions(top_p=0.0), r"`top_p` must be in \(0, 1\]"),
        (lambda: SamplingOptions(top_k=-1), "`top_k` must be at least 0"),
    ],
)
def test_options_out_of_range_are_refused(create: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create()
