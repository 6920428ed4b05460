from __future__ import annotations

import numpy as np
import pytest

from service.decoding.beam import BeamSearch
from service.request import DecodingOptions, FinishReason, Hypothesis
from service.rows import Candidates
from tests.fakes import EOS, Script, copy_script, random_script

V = 12


def step(search: BeamSearch, log_probs: list[list[float]]) -> dict[int, tuple[Hypothesis, ...]]:
    """Advance by whole distributions, one list a row."""
    values = np.array(log_probs, np.float32)
    ids = np.argsort(-values, axis=1, kind="stable")[:, : search.num_candidates]
    moves = search.advance(Candidates(ids, np.take_along_axis(values, ids, axis=1)))
    return moves.answers


def options(**changes: float) -> DecodingOptions:
    return DecodingOptions(**changes)  # type: ignore[arg-type]


def create(*sentences: tuple[DecodingOptions, int], vocab_size: int = 4) -> BeamSearch:
    search = BeamSearch(eos_id=EOS, vocab_size=vocab_size)
    search.add(list(sentences))
    return search


def greedy(script: Script, source: tuple[int, ...], max_length: int) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) < max_length:
        token = int(np.argmax(script(source, tokens)))
        if token == EOS:
            break
        tokens = (*tokens, token)
    return tokens


def search_alone(script: Script, source: tuple[int, ...], decoding: DecodingOptions, limit: int):
    search = create((decoding, limit), vocab_size=V)
    prefixes: list[tuple[int, ...]] = [()]
    while True:
        values = np.stack([script(source, prefix) for prefix in prefixes])
        edits = search.edits()
        values[edits.rows, edits.token_ids] += edits.biases
        ids = np.argsort(-values, axis=1, kind="stable")[:, : search.num_candidates]
        advance = search.advance(Candidates(ids, np.take_along_axis(values, ids, axis=1)))
        if advance.answers:
            return advance.answers[0]
        prefixes = [
            (*prefixes[parent], token)
            for parent, token in zip(
                advance.moves.parent_rows.tolist(), advance.moves.token_ids.tolist(), strict=True
            )
        ]


@pytest.mark.parametrize("seed", range(20))
def test_beam_one_equals_greedy(seed: int) -> None:
    script = random_script(V, seed=seed, sharpness=1.0)
    (answer,) = search_alone(script, (3, 0), options(beam_size=1, length_penalty=1.0), 9)
    assert answer.token_ids == greedy(script, (3, 0), 9)
    is_cut = len(answer.token_ids) == 9
    assert answer.finish_reason is (FinishReason.LENGTH if is_cut else FinishReason.STOP)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_reported_score_equals_the_recomputed_one(alpha: float) -> None:
    script = random_script(V, seed=4)
    decoding = options(beam_size=4, length_penalty=alpha, num_hypotheses=4)
    for answer in search_alone(script, (3, 0), decoding, 7):
        said = answer.token_ids
        if answer.finish_reason is FinishReason.STOP:
            said = (*said, EOS)
        log_prob = sum(float(script((3, 0), said[:i])[token]) for i, token in enumerate(said))
        assert answer.log_prob == pytest.approx(log_prob, abs=1e-9)
        assert answer.score == pytest.approx(log_prob / len(said) ** alpha, abs=1e-9)


def test_answers_come_best_first_and_differ() -> None:
    decoding = options(beam_size=6, num_hypotheses=6)
    answers = search_alone(random_script(V, seed=2), (3, 0), decoding, 8)
    assert len({(answer.token_ids, answer.finish_reason) for answer in answers}) == 6
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)


def test_a_sure_model_is_followed() -> None:
    source = (4, 5, 6, EOS)
    (answer,) = search_alone(copy_script(V), source, options(beam_size=4), 18)
    assert answer.token_ids == (4, 5, 6)


def test_the_shortest_answer_has_the_least_number_of_tokens_with_eos() -> None:
    def ends_at_once(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        return np.log(np.array([0.9] + [0.1 / (V - 1)] * (V - 1), np.float32))

    for beam_size in (1, 3):
        decoding = options(beam_size=beam_size, min_target_tokens=3)
        (answer,) = search_alone(ends_at_once, (3, 0), decoding, 9)
        assert len((*answer.token_ids, EOS)) == 3
        assert answer.finish_reason is FinishReason.STOP


def test_a_sentence_of_one_row_expands_to_its_beam() -> None:
    search = create((options(beam_size=3), 9))
    values = np.array([[-9.0, -1.0, -2.0, -3.0]], np.float32)
    ids = np.array([[1, 2, 3, 0]])
    advance = search.advance(Candidates(ids, values[:, [1, 2, 3, 0]]))
    assert advance.moves.parent_rows.tolist() == [0, 0, 0]
    assert advance.moves.token_ids.tolist() == [1, 2, 3]
    assert advance.moves.row_counts.tolist() == [3]


def test_eos_outside_the_best_k_does_not_finish() -> None:
    search = create((options(beam_size=1), 9))
    answers = step(search, [[-2.0, -1.0, -3.0, -4.0]])
    assert answers == {}


def test_search_goes_on_while_an_open_hypothesis_may_still_win() -> None:
    search = create((options(beam_size=2, length_penalty=1.0), 10))
    # EOS scores -1.0 / 1; the open one has -1.1 and may come to -1.1 / 10.
    assert step(search, [[-1.0, -1.1, -5.0, -6.0]]) == {}


def test_search_stops_when_nothing_open_can_win() -> None:
    search = create((options(beam_size=2, length_penalty=0.0), 10))
    answers = step(search, [[-1.0, -1.1, -5.0, -6.0]])
    assert answers[0][0].token_ids == ()
    assert answers[0][0].score == -1.0


def test_at_the_limit_open_hypotheses_finish_by_length() -> None:
    search = create((options(beam_size=2, num_hypotheses=2), 1))
    answers = step(search, [[-9.0, -1.0, -2.0, -3.0]])
    assert [(a.token_ids, a.finish_reason) for a in answers[0]] == [
        ((1,), FinishReason.LENGTH),
        ((2,), FinishReason.LENGTH),
    ]


def test_a_finished_sentence_leaves_and_the_others_keep_their_order() -> None:
    search = create((options(beam_size=1), 9), (options(beam_size=1), 9), (options(beam_size=1), 9))
    ids = np.array([[1, 2], [0, 2], [3, 2]])
    advance = search.advance(Candidates(ids, np.array([[-1.0, -2.0]] * 3, np.float32)))
    assert list(advance.answers) == [1]
    assert advance.moves.kept_sentences.tolist() == [0, 2]
    assert advance.moves.parent_rows.tolist() == [0, 2]
    assert advance.moves.token_ids.tolist() == [1, 3]


def test_of_equal_candidates_the_earlier_row_wins() -> None:
    search = create((options(beam_size=2), 9))
    search.advance(Candidates(np.array([[1, 2, 3, 0]]), np.array([[-1, -1, -2, -3]], np.float32)))
    values = np.array([[-1, -1, -5, -6], [-1, -1, -5, -6]], np.float32)
    ids = np.array([[2, 3, 1, 0], [2, 3, 1, 0]])
    moves = search.advance(Candidates(ids, values)).moves
    assert moves.parent_rows.tolist() == [0, 0]
    assert moves.token_ids.tolist() == [2, 3]


def test_dropped_sentences_take_their_rows_with_them() -> None:
    search = create((options(beam_size=2), 9), (options(beam_size=1), 9))
    values = np.array([[-1.0, -2.0, -3.0, -4.0]] * 2, np.float32)
    search.advance(Candidates(np.array([[1, 2, 3, 0]] * 2), values))
    moves = search.keep([1])
    assert moves.parent_rows.tolist() == [2]
    assert moves.token_ids.tolist() == [1]
    assert moves.kept_sentences.tolist() == [1]
    assert moves.row_counts.tolist() == [1]


def test_what_was_said_is_forgotten_when_nobody_needs_it() -> None:
    search = create()
    ids, values = np.array([[1, 2, 3, 0]]), np.array([[-1, -2, -3, -9]], np.float32)
    for _ in range(1000):
        search.add([(options(beam_size=1), 90)])
        search.advance(Candidates(ids, values))
        search.keep([])
    assert search.num_entries < 100
    for _ in range(50):
        search.add([(options(beam_size=1), 20)])
        for _ in range(20):
            search.advance(Candidates(ids, values))
    assert search.num_entries < 100


def test_impossible_candidates_never_become_rows() -> None:
    search = create((options(beam_size=3), 9))
    values = np.array([[-1.0, -np.inf, -np.inf, -np.inf]], np.float32)
    moves = search.advance(Candidates(np.array([[2, 1, 3, 0]]), values)).moves
    assert moves.token_ids.tolist() == [2]


def test_a_model_that_answers_nan_gives_no_hypothesis() -> None:
    search = create((options(beam_size=2), 9))
    values = np.full((1, 4), np.nan, np.float32)
    assert search.advance(Candidates(np.array([[0, 1, 2, 3]]), values)).answers == {0: ()}


def test_one_candidate_more_than_the_largest_beam_is_asked_for() -> None:
    assert create((options(beam_size=1), 9), vocab_size=100).num_candidates == 1
    two = create((options(beam_size=1), 9), (options(beam_size=8), 9), vocab_size=100)
    assert two.num_candidates == 9
    assert create((options(beam_size=8), 9), vocab_size=4).num_candidates == 4


@pytest.mark.parametrize("seed", range(30))
def test_further_candidates_would_change_nothing(seed: int) -> None:
    """Of a whole distribution with many equal numbers and a probable EOS no more is needed than is asked for."""
    rng = np.random.default_rng(seed)
    sentences = [
        (options(beam_size=int(k), num_hypotheses=int(k)), 9) for k in rng.integers(1, 6, 3)
    ]
    asked, whole = (create(*sentences, vocab_size=V) for _ in range(2))
    num_rows = len(sentences)
    while num_rows:
        values = -rng.integers(1, 5, (num_rows, V)).astype(np.float32)
        ids = np.argsort(-values, axis=1, kind="stable")
        few = ids[:, : asked.num_candidates]
        found = asked.advance(Candidates(few, np.take_along_axis(values, few, axis=1)))
        expected = whole.advance(Candidates(ids, np.take_along_axis(values, ids, axis=1)))
        assert found.answers == expected.answers
        assert found.moves.parent_rows.tolist() == expected.moves.parent_rows.tolist()
        assert found.moves.token_ids.tolist() == expected.moves.token_ids.tolist()
        num_rows = len(found.moves.parent_rows)
