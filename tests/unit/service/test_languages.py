"""Language codes and their fallback."""

from __future__ import annotations

import pytest

from export.bundle import is_language_code
from service.languages import lookup_chain


@pytest.mark.parametrize(
    ("code", "chain"),
    [
        ("pt", ["pt"]),
        ("pt-BR", ["pt-br", "pt"]),
        ("zh-Hant-TW", ["zh-hant-tw", "zh-hant", "zh"]),
        ("zh-Hant-CN-x-private1", ["zh-hant-cn-x-private1", "zh-hant-cn", "zh-hant", "zh"]),
    ],
)
def test_lookup_takes_subtags_off_the_end(code: str, chain: list[str]) -> None:
    assert list(lookup_chain(code)) == chain


@pytest.mark.parametrize("code", ["en", "pt-BR", "zh-Hant-TW", "sr-Latn-RS", "de-CH-1996"])
def test_language_codes_are_recognised(code: str) -> None:
    assert is_language_code(code)


@pytest.mark.parametrize(
    "code", ["", "e", "-", "en-", "en--US", "en US", "english!", "é", "a" * 9, "en" + "-x" * 50]
)
def test_what_is_no_language_code_is_not(code: str) -> None:
    assert not is_language_code(code)
