"""For any text and any translation of its segments, what lies between them comes back byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from service.reassembly import TranslatedSegment, reassemble
from service.request import FinishReason, Hypothesis
from service.segmenter import Segmenter, Span, split_to_fit

_PIECES = st.sampled_from(
    [
        "Hello there",
        "Dr. Who",
        "e.g. this",
        ". ",
        "! ",
        "?",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u00a0",
        "\u3000",
    ]
    + [
        "1. ",
        "- ",
        "😀",
        "東京。",
        "\x00",
        "\x1f",
        "\x85",
        "\u2028",
        "\ufeff",
        "x" * 40,
        ", and",
        "…",
    ]
)
_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(_PIECES, max_size=40).map("".join),
)


def _count(texts: Sequence[str]) -> list[int]:
    return [len(text) + 1 for text in texts]


def _spans(text: str, limit: int) -> list[Span]:
    segments = Segmenter("en").segment(text)
    return [part for span in segments for part in split_to_fit(text, span, limit, _count)]


def _segment(span: Span, *texts: str) -> TranslatedSegment:
    hypothesis = Hypothesis(
        token_ids=(1,), log_prob=-1.0, score=-0.5, finish_reason=FinishReason.STOP
    )
    return TranslatedSegment(span, (hypothesis,) * len(texts), texts)


@given(_TEXTS, st.integers(5, 60))
def test_a_translation_that_changes_nothing_gives_the_text_itself(text: str, limit: int) -> None:
    spans = _spans(text, limit)
    segments = [_segment(span, text[span.start : span.end]) for span in spans]
    assert reassemble(text, segments).translated_text == text


@given(
    _TEXTS,
    st.integers(5, 60),
    st.lists(st.text(max_size=9), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_what_lies_between_segments_is_the_same_in_every_answer(
    text: str, limit: int, texts: list[str], num_alternatives: int
) -> None:
    spans = _spans(text, limit)
    segments = [_segment(span, *texts) for span in spans]
    answer = reassemble(text, segments, num_alternatives=num_alternatives)
    source_end = target_end = 0
    for span, segment in zip(spans, answer.segments, strict=True):
        gap = text[source_end : span.start]
        assert answer.translated_text[target_end : segment.target_start] == gap
        assert answer.translated_text[segment.target_start : segment.target_end] == texts[0]
        source_end, target_end = span.end, segment.target_end
    assert answer.translated_text[target_end:] == text[source_end:]
    answers = (answer.translated_text, *answer.alternatives)
    assert len(set(answers)) == len(answers) <= num_alternatives + 1
