"""Answers stand where their sources stood; everything between is copied."""

from __future__ import annotations

import pytest

from service.reassembly import TranslatedSegment, reassemble
from service.request import FinishReason, Hypothesis
from service.segmenter import Span


def _hypothesis(score: float, *, tokens: int = 2, cut: bool = False) -> Hypothesis:
    reason = FinishReason.LENGTH if cut else FinishReason.STOP
    return Hypothesis(
        token_ids=tuple(range(tokens)),
        log_prob=score * (tokens + 1),
        score=score,
        finish_reason=reason,
    )


def _segment(start: int, end: int, *texts: str, cut: bool = False) -> TranslatedSegment:
    hypotheses = tuple(_hypothesis(-0.5 * (rank + 1), cut=cut) for rank in range(len(texts)))
    return TranslatedSegment(Span(start, end), hypotheses, texts)


def test_whitespace_is_copied_byte_for_byte() -> None:
    source = "  Hello\n\n  World \r\n"
    answer = reassemble(source, [_segment(2, 7, "Olá"), _segment(11, 16, "Mundo")])
    assert answer.translated_text == "  Olá\n\n  Mundo \r\n"
    assert [
        (
            answer.translated_text[s.target_start : s.target_end],
            source[s.source_start : s.source_end],
        )
        for s in answer.segments
    ] == [("Olá", "Hello"), ("Mundo", "World")]


def test_a_text_without_segments_comes_back_as_it_is() -> None:
    answer = reassemble(" \n ", [], num_alternatives=3, with_scores=True)
    assert (answer.translated_text, answer.alternatives, answer.score) == (" \n ", (), None)


def test_the_kth_alternative_takes_the_kth_hypothesis_of_each_segment_or_its_last() -> None:
    segments = [_segment(0, 3, "Oi.", "Olá."), _segment(5, 9, "Tchau!", "Adeus!", "Até logo!")]
    answer = reassemble("Hi.  Bye!", segments, num_alternatives=4)
    assert answer.translated_text == "Oi.  Tchau!"
    assert answer.alternatives == ("Olá.  Adeus!", "Olá.  Até logo!")
    assert answer.alternative_scores == ()


def test_equal_alternatives_are_told_once_and_never_repeat_the_best() -> None:
    answer = reassemble("Hi.", [_segment(0, 3, "Oi.", "Oi.", "Olá.", "Oi.")], num_alternatives=3)
    assert answer.alternatives == ("Olá.",)


def test_no_more_alternatives_come_back_than_were_asked_for() -> None:
    answer = reassemble("Hi.", [_segment(0, 3, "a", "b", "c", "d")], num_alternatives=2)
    assert answer.alternatives == ("b", "c")


def test_scores_are_weighted_by_target_tokens() -> None:
    long = TranslatedSegment(Span(4, 7), (_hypothesis(-1.0, tokens=7),), ("x",))
    short = TranslatedSegment(Span(0, 3), (_hypothesis(-0.2, tokens=1),), ("y",))
    answer = reassemble("Hi. Ho.", [short, long], with_scores=True)
    assert answer.score == pytest.approx((-0.2 * 2 + -1.0 * 8) / 10)
    assert [segment.score for segment in answer.segments] == [-0.2, -1.0]


def test_scores_of_alternatives_come_with_them() -> None:
    answer = reassemble("Hi.", [_segment(0, 3, "a", "b")], num_alternatives=1, with_scores=True)
    assert (answer.score, answer.alternative_scores) == (-0.5, (-1.0,))


def test_a_segment_that_a_limit_cut_marks_the_text_truncated() -> None:
    whole, cut = _segment(0, 3, "a"), _segment(4, 7, "b", cut=True)
    assert not reassemble("Hi. Ho.", [whole]).truncated
    answer = reassemble("Hi. Ho.", [whole, cut])
    assert answer.truncated
    assert [segment.finish_reason for segment in answer.segments] == [
        FinishReason.STOP,
        FinishReason.LENGTH,
    ]
