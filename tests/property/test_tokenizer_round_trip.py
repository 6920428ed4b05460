"""Ids survive text: what one trip through text and back gives, every further trip gives again, byte for byte."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.tokenizer import Tokenizer
from tests.tiny_models import make_tokenizer

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


@functools.cache
def _tokenizer(kind: str, normalization: str) -> Tokenizer:
    return make_tokenizer(kind=kind, normalization=normalization)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=TEXTS)
def test_second_trip_changes_nothing(kind: str, text: str) -> None:
    tokenizer = _tokenizer(kind, "nmt_nfkc")
    once = tokenizer.decode_target(tokenizer.encode_target(text))
    ids = tokenizer.encode_target(once)
    again = tokenizer.decode_target(ids)
    assert again.encode() == once.encode()
    assert tokenizer.encode_target(again) == ids


@given(
    words=st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1))
)
def test_identity_normalization_keeps_every_byte_of_words(words: list[str]) -> None:
    tokenizer = _tokenizer("unigram", "identity")
    text = " ".join(word.replace("\u2581", "") or "x" for word in words)
    assert tokenizer.decode_target(tokenizer.encode_target(text)).encode() == text.encode()


@given(texts=st.lists(TEXTS, max_size=5))
def test_batch_equals_singles(texts: list[str]) -> None:
    tokenizer = _tokenizer("unigram", "nmt_nfkc")
    assert tokenizer.encode_source_batch(texts) == [tokenizer.encode_source(t) for t in texts]
