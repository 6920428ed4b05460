from __future__ import annotations

import dataclasses
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from export.bundle import (
    Architecture,
    BundleError,
    DecodingDefaults,
    FileEntry,
    Limits,
    Manifest,
    Score,
    SpecialTokens,
)

texts = st.text(min_size=1, max_size=20)
languages = st.from_regex(r"\A[a-z]{2,8}(-[a-z0-9]{1,8}){0,3}\Z")
counts = st.integers(min_value=2, max_value=10**5)
numbers = st.floats(min_value=0, max_value=10)
token_ids = st.integers(min_value=0, max_value=99)
entries = st.builds(
    FileEntry, sha256=st.text("0123456789abcdef", min_size=64, max_size=64), size_bytes=counts
)
needed_files = {
    name: FileEntry(sha256="0" * 64, size_bytes=1)
    for name in (
        "encoder.onnx",
        "decoder.onnx",
        "t.spm",
        "lists.npz",
        "decoder.shortlist.onnx",
        "columns.onnx",
    )
}

manifests = st.builds(
    Manifest,
    name=texts,
    version=texts,
    source_language=languages,
    target_language=languages,
    architecture=st.builds(
        Architecture,
        num_encoder_layers=counts,
        num_decoder_layers=counts,
        num_heads=counts,
        head_size=counts,
        d_model=counts,
        vocab_size=st.integers(min_value=100, max_value=10**6),
    ),
    precision=st.sampled_from(["float32", "float16", "int8"]),
    limits=st.builds(
        Limits,
        max_source_tokens=counts,
        max_target_tokens=counts,
        target_length_ratio=numbers,
        target_length_offset=st.integers(min_value=0, max_value=1000),
    ),
    decoding=st.builds(
        DecodingDefaults, beam_size=st.integers(min_value=1, max_value=16), length_penalty=numbers
    ),
    special_tokens=st.builds(
        SpecialTokens,
        eos_id=token_ids,
        pad_id=token_ids,
        unk_id=token_ids,
        bos_id=st.none() | token_ids,
    ),
    tokenizer_files=st.just({"source": "t.spm", "target": "t.spm"}),
    license=st.text(max_size=20),
    scores=st.lists(
        st.builds(Score, test_set=texts, metric=texts, value=numbers, signature=texts), max_size=3
    ).map(tuple),
    shortlist=st.none() | st.just("lists.npz"),
    files=st.dictionaries(texts, entries, max_size=3).map(lambda more: {**more, **needed_files}),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(manifests)
def test_a_manifest_survives_its_json(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


@given(manifests, st.data())
def test_any_field_replaced_by_anything_is_read_or_refused_but_never_breaks(
    manifest: Manifest, data: st.DataObject
) -> None:
    fields: dict[str, Any] = json.loads(manifest.to_json())
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    try:
        read = Manifest.from_json(json.dumps(fields))
    except BundleError as error:
        assert error.faults
    else:
        assert dataclasses.asdict(read)[name] == _as_tuple(fields[name])


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@given(st.text(max_size=50))
def test_any_text_is_read_or_refused_but_never_breaks(text: str) -> None:
    try:
        Manifest.from_json(text)
    except BundleError as error:
        assert error.faults
