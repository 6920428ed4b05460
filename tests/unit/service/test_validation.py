"""Everything that a request can get wrong gets one clear message."""

from __future__ import annotations

import math
from typing import Any

import pytest

from service.config import LimitsConfig
from service.errors import (
    InvalidRequestError,
    NotFoundError,
    NotImplementedInVersionError,
    SourceTooLongError,
    UnsupportedLanguageError,
)
from service.request import DecodingOptions
from service.validation import Validator
from tests.builders import make_manifest, make_request


def _validator(**limits: int) -> Validator:
    manifests = [
        make_manifest(),
        make_manifest(name="en-pt-big"),
        make_manifest(name="pt-en", source_language="pt", target_language="en"),
        make_manifest(name="en-zh", target_language="zh-Hant"),
    ]
    return Validator(manifests, LimitsConfig(**limits))


def test_unset_options_take_the_defaults_of_the_model() -> None:
    valid = _validator().validate(make_request("Hi."))
    assert valid.model == "en-pt"
    assert valid.options == DecodingOptions(
        beam_size=4,
        length_penalty=1.0,
        max_target_tokens=128,
        min_target_tokens=0,
        num_hypotheses=1,
    )
    assert valid.item_errors == {}


def test_options_that_are_set_are_kept() -> None:
    request = make_request(
        beam_size=1,
        length_penalty=0.0,
        max_target_tokens=9,
        min_target_tokens=9,
        return_scores=True,
    )
    valid = _validator().validate(request)
    assert valid.options == DecodingOptions(
        beam_size=1, length_penalty=0.0, max_target_tokens=9, min_target_tokens=9, num_hypotheses=1
    )
    assert valid.return_scores


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "`beam_size` must be in [1, 16], but is 0."),
        ({"beam_size": 1000}, "`beam_size` must be in [1, 16], but is 1000."),
        ({"beam_size": -1}, "`beam_size` must be in [1, 16], but is -1."),
        ({"length_penalty": -0.1}, "`length_penalty` must be in [0, 10], but is -0.1."),
        ({"length_penalty": math.nan}, "`length_penalty` must be in [0, 10], but is nan."),
        ({"length_penalty": math.inf}, "`length_penalty` must be in [0, 10], but is inf."),
        ({"max_target_tokens": 0}, "`max_target_tokens` must be in [1, 128], but is 0."),
        ({"max_target_tokens": 129}, "`max_target_tokens` must be in [1, 128], but is 129."),
        (
            {"max_target_tokens": 5, "min_target_tokens": 6},
            "`min_target_tokens` must be in [0, 5], but is 6.",
        ),
        ({"min_target_tokens": -1}, "`min_target_tokens` must be in [0, 128], but is -1."),
        ({"num_alternatives": -1}, "`num_alternatives` must be in [0, 3], but is -1."),
        ({"num_alternatives": 16}, "`num_alternatives` must be in [0, 15], but is 16."),
        (
            {"num_alternatives": 2, "beam_size": 2},
            "`num_alternatives` must be in [0, 1], but is 2.",
        ),
        (
            {"mime_type": "image/png"},
            '`mime_type` must be "text/plain" or "text/html", but is \'image/png\'.',
        ),
    ],
)
def test_an_option_out_of_range_is_refused_by_its_name_and_range(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _validator().validate(make_request("Hi.", **options))
    assert str(caught.value) == message


def test_alternatives_widen_a_beam_that_was_not_set() -> None:
    options = _validator().validate(make_request(num_alternatives=7)).options
    assert (options.beam_size, options.num_hypotheses) == (8, 8)
    options = _validator().validate(make_request(num_alternatives=1)).options
    assert (options.beam_size, options.num_hypotheses) == (4, 2)


@pytest.mark.parametrize(
    ("source", "target", "model"),
    [
        ("en", "pt", "en-pt"),
        ("EN", "Pt", "en-pt"),
        ("en-GB", "pt-BR", "en-pt"),
        ("pt-PT", "en-US", "pt-en"),
        ("en", "zh-Hant-TW", "en-zh"),
    ],
)
def test_languages_fall_back_to_the_closest_model(source: str, target: str, model: str) -> None:
    request = make_request(source_language_code=source, target_language_code=target)
    assert _validator().validate(request).model == model


def test_a_closer_model_wins_over_an_earlier_one() -> None:
    manifests = [make_manifest(), make_manifest(name="brazil", target_language="pt-BR")]
    validator = Validator(manifests, LimitsConfig())
    assert validator.validate(make_request(target_language_code="pt-BR")).model == "brazil"
    assert validator.validate(make_request(target_language_code="pt-PT")).model == "en-pt"


@pytest.mark.parametrize("code", ["xx", "", "english", "pt_BR", "en\n", "zh", "x" * 5000])
def test_an_unknown_language_is_refused_with_the_known_ones(code: str) -> None:
    with pytest.raises(UnsupportedLanguageError) as caught:
        _validator().validate(make_request(target_language_code=code))
    message = str(caught.value)
    assert message.startswith("`target_language_code` must be one of en, pt, zh-Hant, but is ")
    assert len(message) < 150


def test_a_pair_that_no_model_translates_is_not_found() -> None:
    with pytest.raises(
        NotFoundError, match="No loaded model translates pt to zh-Hant, but en to pt, pt to en"
    ):
        _validator().validate(
            make_request(source_language_code="pt", target_language_code="zh-Hant")
        )


def test_a_model_may_be_asked_for_by_name_with_or_without_languages() -> None:
    assert _validator().validate(make_request(model="en-pt-big")).model == "en-pt-big"
    request = make_request(model="pt-en", source_language_code="", target_language_code="")
    assert _validator().validate(request).model == "pt-en"


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="`model` must be one of 'en-pt', .*, but is 'de-fr'"):
        _validator().validate(make_request(model="de-fr"))


def test_a_model_that_does_not_translate_the_pair_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="Model 'pt-en' translates pt to en, not en to pt"):
        _validator().validate(make_request(model="pt-en"))


def test_what_is_not_built_yet_is_named() -> None:
    with pytest.raises(NotImplementedInVersionError, match="`sampling`, `target_prefix`"):
        _validator().validate(make_request(unimplemented=("sampling", "target_prefix")))
    with pytest.raises(NotImplementedInVersionError, match="text/html"):
        _validator().validate(make_request(mime_type="text/html"))
    assert _validator().validate(make_request(mime_type="text/plain; charset=utf-8"))


def test_a_text_that_is_too_long_is_an_error_of_that_text_only() -> None:
    valid = _validator(max_text_characters=5).validate(make_request("short", "longer", "ok"))
    assert set(valid.item_errors) == {1}
    assert isinstance(valid.item_errors[1], SourceTooLongError)
    assert str(valid.item_errors[1]) == "A text must have at most 5 characters, but this one has 6."


def test_a_lone_surrogate_is_an_error_of_that_text_only() -> None:
    valid = _validator().validate(make_request("fine 😀", "bad \ud800", "\udfff"))
    assert set(valid.item_errors) == {1, 2}
    assert "lone surrogate at character 4" in str(valid.item_errors[1])


def test_too_many_texts_fail_the_call() -> None:
    with pytest.raises(InvalidRequestError, match="at most 2 texts, but has 3"):
        _validator(max_contents=2).validate(make_request("a", "b", "c"))


def test_too_many_characters_together_fail_the_call_but_refused_texts_do_not_count() -> None:
    validator = _validator(max_text_characters=6, max_request_characters=10)
    with pytest.raises(InvalidRequestError, match="at most 10 characters together, but has 12"):
        validator.validate(make_request("abcdef", "abcdef"))
    assert set(validator.validate(make_request("abcdef", "x" * 5_000_000)).item_errors) == {1}


def test_find_lists_the_models_that_answer() -> None:
    names = [manifest.name for manifest in _validator().find("en-US", "")]
    assert names == ["en-pt", "en-pt-big", "en-zh"]
    assert [manifest.name for manifest in _validator().find("", "pt-BR")] == ["en-pt", "en-pt-big"]
    assert _validator().find("xx", "") == []
