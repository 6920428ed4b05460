"""For any text: segments are in order, apart, and together with what lies between them are the text."""

from __future__ import annotations

from collections.abc import Sequence

import sentencex
from hypothesis import given
from hypothesis import strategies as st

from service.segmenter import Segmenter, Span, split_to_fit

_PARTS = st.sampled_from(
    [
        "Hello",
        "world",
        "Dr.",
        "e.g.",
        ". ",
        "! ",
        "?",
        "...",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u3000",
        "\u00a0",
    ]
    + [
        "1.",
        "(a)",
        '"',
        "“",
        "”",
        "。",
        "東京",
        "😀",
        "e\u0301",
        "\x00",
        "\ufeff",
        "\u200d",
        ",",
        ";",
        "—",
        "٣",
        "؟",
    ]
)
_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(_PARTS, max_size=60).map("".join),
)


def _count(texts: Sequence[str]) -> list[int]:
    return [len(text) + 1 for text in texts]


def _check_spans(text: str, spans: Sequence[Span]) -> None:
    end = 0
    for span in spans:
        assert end <= span.start < span.end <= len(text)
        piece = text[span.start : span.end]
        assert piece == piece.strip()
        end = span.end


@given(_TEXTS)
def test_segments_are_ordered_stripped_and_leave_no_letter_outside(text: str) -> None:
    spans = Segmenter("en").segment(text)
    _check_spans(text, spans)
    outside, end = "", 0
    for span in spans:
        outside += text[end : span.start]
        assert any(map(str.isalpha, text[span.start : span.end]))
        end = span.end
    assert not any(map(str.isalpha, outside + text[end:]))


@given(_TEXTS, st.integers(2, 30))
def test_splitting_loses_whitespace_only_and_every_part_fits(text: str, limit: int) -> None:
    for segment in Segmenter("en").segment(text):
        parts = split_to_fit(text, segment, limit, _count)
        _check_spans(text, parts)
        assert parts[0].start == segment.start
        assert parts[-1].end == segment.end
        assert all(part.end - part.start < limit for part in parts)
        for left, right in zip(parts, parts[1:], strict=False):
            assert text[left.end : right.start].strip() == ""


@given(_TEXTS.map(lambda text: "".join(char for char in text if char.isprintable())))
def test_the_library_gives_back_every_character_of_a_line_of_plain_spaces(line: str) -> None:
    plain = "".join(" " if char.isspace() else char for char in line)
    assert "".join(sentencex.segment("en", plain)) == plain
