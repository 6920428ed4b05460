"""Sentences are found, and whatever is not a sentence stays where it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.segmenter import Segmenter, Span, split_to_fit


def _texts(text: str, language: str = "en") -> list[str]:
    return [text[span.start : span.end] for span in Segmenter(language).segment(text)]


def _count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) + 1 for text in texts]


def _count_characters(texts: Sequence[str]) -> list[int]:
    return [len(text) + 1 for text in texts]


def test_sentences_of_one_line_are_separate_segments() -> None:
    assert _texts("Dr. Smith is here. He left at 3:45 p.m. yesterday!  Did he?") == [
        "Dr. Smith is here.",
        "He left at 3:45 p.m. yesterday!",
        "Did he?",
    ]


@pytest.mark.parametrize(
    "separator", ["\n", "\r\n", "\n\n", "\t", "\x00", "\x0b", "\x85", "\u2028", "\x1b"]
)
def test_lines_tabs_and_control_characters_separate_segments(separator: str) -> None:
    assert _texts(f"one{separator}two") == ["one", "two"]


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "\t \r\n", "...", "7", "1,234.56", "♪ ♪", "---", "😀", "\x00\x01"]
)
def test_a_text_without_letters_has_no_segment(text: str) -> None:
    assert _texts(text) == []


def test_a_number_stays_with_the_sentence_that_it_opens_and_a_sign_with_the_one_that_it_closes() -> (
    None
):
    assert _texts("1. First. 2. Second. Nice 😀! 😍 Yes. 🙏") == [
        "1. First.",
        "2. Second.",
        "Nice 😀!",
        "😍 Yes. 🙏",
    ]


def test_a_regional_code_is_segmented_as_its_language() -> None:
    assert _texts("O Sr. Silva chegou. Ele saiu.", "pt-BR") == ["O Sr. Silva chegou.", "Ele saiu."]


def test_a_segment_that_fits_is_not_split() -> None:
    assert split_to_fit("  a b c  ", Span(2, 7), 4, _count_words) == [Span(2, 7)]


def test_a_long_segment_is_split_between_clauses_first() -> None:
    text = "one two three, four five six, seven eight nine"
    spans = split_to_fit(text, Span(0, len(text)), 8, _count_words)
    assert [text[span.start : span.end] for span in spans] == [
        "one two three, four five six,",
        "seven eight nine",
    ]


def test_two_thousand_words_without_full_stop_are_split_into_even_parts() -> None:
    text = " ".join(["word"] * 2000)
    spans = split_to_fit(text, Span(0, len(text)), 128, _count_words)
    sizes = [len(text[span.start : span.end].split()) for span in spans]
    assert sum(sizes) == 2000
    assert max(sizes) <= 127
    assert min(sizes) >= 100


@pytest.mark.parametrize(
    "text", ["x" * 300, "東京" * 400, "a\u0301" * 300, "👩\u200d👩\u200d👧" * 100, "\u0301" * 300]
)
def test_a_text_without_a_single_space_is_split_anywhere_and_nothing_is_lost(text: str) -> None:
    spans = split_to_fit(text, Span(0, len(text)), 100, _count_characters)
    assert "".join(text[span.start : span.end] for span in spans) == text
    assert all(span.end - span.start <= 99 for span in spans)


def test_a_character_is_not_torn_from_its_accents() -> None:
    text = "e\u0301" * 300
    for span in split_to_fit(text, Span(0, len(text)), 100, _count_characters):
        assert text[span.start] == "e"


def test_a_limit_that_nothing_fits_still_ends() -> None:
    spans = split_to_fit("abc", Span(0, 3), 1, _count_characters)
    assert spans == [Span(0, 1), Span(1, 2), Span(2, 3)]


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u202f", "\u2003"])
def test_wide_spaces_before_a_full_stop_do_no_harm(space: str) -> None:
    assert _texts(f"Bonjour{space}! Ça va{space}? B{space}.", "fr") == [
        f"Bonjour{space}!",
        f"Ça va{space}?",
        f"B{space}.",
    ]


def test_a_line_on_which_the_library_fails_is_one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):  # noqa: N818
        pass

    def panic(*_: str) -> list[str]:
        raise PanicException

    monkeypatch.setattr("sentencex.segment", panic)
    assert _texts("One here. Two there.\nThree.") == ["One here. Two there.", "Three."]


def test_a_library_that_loses_characters_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentencex.segment", lambda *_: ["One here.", "Two there."])
    assert _texts("One here. Two there.") == ["One here. Two there."]


def test_a_long_line_is_read_in_windows_without_tearing_sentences() -> None:
    sentence = "This sentence has a number, and it is 1234 or so. "
    assert set(_texts(sentence * 2000)) == {sentence.strip()}


def test_a_sentence_longer_than_a_window_is_cut_between_words() -> None:
    text = "word " * 6000
    spans = Segmenter("en").segment(text)
    assert all(
        text[span.start : span.end].split() == ["word"] * len(text[span.start : span.end].split())
        for span in spans
    )
    assert sum(len(text[span.start : span.end].split()) for span in spans) == 6000


def test_a_word_longer_than_a_window_loses_nothing() -> None:
    assert "".join(_texts("x" * 25_000)) == "x" * 25_000
