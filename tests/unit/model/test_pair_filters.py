from __future__ import annotations

import pytest

from model.pair_filters import (
    FilterLimits,
    LanguageJudge,
    find_fault,
    has_repetition,
    is_copy,
    length_ratio,
)

LIMITS = FilterLimits()
RAMBLING = (
    "A casa é antiga, bonita, grande, alta, branca, fria, cara, e fica na rua longa do porto velho."
)


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        ("The house is old.", "A casa é antiga.", None),
        ("The house is old.", " ", "empty"),
        ("", "A casa é antiga.", "empty"),
        ("The house is old.", "the HOUSE is old!", "copy"),
        ("The house is old.", "A casa casa casa casa é antiga.", "repetition"),
        ("The house is old.", RAMBLING, "length_ratio"),
    ],
)
def test_first_filter_that_objects_is_named(source: str, target: str, fault: str | None) -> None:
    assert find_fault(source, target, LIMITS) == fault


def test_name_of_two_words_may_stay_as_it_is() -> None:
    assert not is_copy("Angel Clare", "Angel Clare")
    assert is_copy("Angel Clare came", "Angel Clare came")


def test_phrase_of_several_words_is_seen_as_repeated() -> None:
    assert has_repetition("so", "é assim e é assim e é assim e é assim e", 3)
    assert not has_repetition("so", "é assim e é assim e é assim e", 3)


def test_source_may_repeat_itself_and_its_translation_then_too() -> None:
    assert not has_repetition("Ha! ha! ha! ha!", "Ah! ah! ah! ah! ah!", 3)
    assert has_repetition("Ha! ha! ha! ha!", "ah! " * 6, 3)


def test_repetition_is_seen_where_no_spaces_are() -> None:
    assert has_repetition("It is good.", "很好" * 8, 3)
    assert not has_repetition("It is good. ----------", "很好 ----------", 3)


def test_short_texts_may_differ_more_in_length() -> None:
    assert length_ratio("No.", "De modo nenhum.") < 2
    assert length_ratio("n" * 100, "n" * 15) == pytest.approx(110 / 25)


@pytest.mark.parametrize(
    ("source", "target", "off"),
    [
        ("The house is old.", "The house is old.", {"keep_copies": True}),
        ("The house.", "A casa casa casa casa.", {"max_repeats": 0}),
        ("The house.", RAMBLING, {"max_length_ratio": 0.0}),
    ],
)
def test_each_filter_can_be_switched_off(source: str, target: str, off: dict[str, float]) -> None:
    assert find_fault(source, target, LIMITS) is not None
    assert find_fault(source, target, FilterLimits(**off)) is None


@pytest.mark.parametrize(
    "fields", [{"max_length_ratio": 0.5}, {"max_repeats": -1}, {"language_margin": -0.1}]
)
def test_limit_out_of_range_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(fields))}` must be"):
        FilterLimits(**fields)


ENGLISH = (
    "the committee decided that the budget would not be approved",
    "where is the nearest railway station",
    "they thought that this house was very old",
)
PORTUGUESE = (
    "o comité decidiu que o orçamento não seria aprovado",
    "onde fica a estação de comboios mais próxima",
    "eles pensavam que esta casa era muito antiga",
)


def test_text_in_the_wrong_language_is_out_of_place() -> None:
    pairs = list(zip(ENGLISH, PORTUGUESE, strict=True)) * 20
    pairs.append((ENGLISH[0], ENGLISH[0]))  # a wrong pair among many right ones
    judge = LanguageJudge(pairs)
    assert judge.lean("the station was near the house") < -0.3
    assert judge.lean("a estação era próxima da casa") > 0.3
    assert judge.lean("12:30") == 0.0
    assert judge.is_in_place(ENGLISH[1], PORTUGUESE[1], 0.3)
    assert not judge.is_in_place(ENGLISH[1], ENGLISH[1], 0.3)
    assert not judge.is_in_place(PORTUGUESE[1], PORTUGUESE[1], 0.3)
