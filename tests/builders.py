"""Values for tests: every argument has a default, all are keyword only."""

from __future__ import annotations

import itertools
from typing import Any

from export.bundle import Architecture, DecodingDefaults, Limits, Manifest, Score, SpecialTokens
from service.request import (
    DecodingOptions,
    Sequence,
    TranslationOptions,
    TranslationRequest,
    ValidRequest,
)

_sequence_ids = itertools.count(1)


def make_manifest(**changes: Any) -> Manifest:
    """A model of English to Portuguese, without files."""
    fields: dict[str, Any] = {
        "name": "en-pt",
        "version": "1",
        "source_language": "en",
        "target_language": "pt",
        "architecture": Architecture(
            num_encoder_layers=1,
            num_decoder_layers=1,
            num_heads=1,
            head_size=8,
            d_model=8,
            vocab_size=32,
        ),
        "precision": "float32",
        "limits": Limits(max_source_tokens=64, max_target_tokens=128),
        "decoding": DecodingDefaults(beam_size=4, length_penalty=1.0),
        "special_tokens": SpecialTokens(eos_id=0, pad_id=0, unk_id=1, bos_id=None),
        "tokenizer_files": {"source": "tokenizer.spm", "target": "tokenizer.spm"},
        "license": "MPL-2.0",
        "scores": (Score(test_set="test", metric="BLEU", value=40.0, signature="s"),),
        "files": {},
    }
    return Manifest(**{**fields, **changes})


def make_request(*contents: str, **changes: Any) -> TranslationRequest:
    """A request as the edge gives it; options may be given by their names."""
    options = {
        name: changes.pop(name)
        for name in TranslationOptions.__dataclass_fields__
        if name in changes
    }
    fields: dict[str, Any] = {
        "contents": contents,
        "source_language_code": "en",
        "target_language_code": "pt",
        "options": TranslationOptions(**options),
        "request_id": "test",
    }
    return TranslationRequest(**{**fields, **changes})


def make_valid_request(*contents: str, **changes: Any) -> ValidRequest:
    """A request that passed validation; decoding options may be given by their names."""
    options = {
        name: changes.pop(name) for name in DecodingOptions.__dataclass_fields__ if name in changes
    }
    fields: dict[str, Any] = {
        "contents": contents,
        "model": "en-pt",
        "options": DecodingOptions(**{"max_target_tokens": 128, **options}),
        "return_scores": False,
        "request_id": "test",
        "deadline": None,
    }
    return ValidRequest(**{**fields, **changes})


def make_sequence(
    source_ids: tuple[int, ...] = (5, 6, 7, 0),
    *,
    request_id: str = "request",
    max_length: int | None = None,
    deadline: float | None = None,
    sequence_id: int | None = None,
    **options: Any,
) -> Sequence:
    """A sentence on its way; decoding options may be given by their names."""
    return Sequence(
        sequence_id=next(_sequence_ids) if sequence_id is None else sequence_id,
        request_id=request_id,
        source_ids=source_ids,
        options=DecodingOptions(**options),
        max_length=2 * len(source_ids) + 10 if max_length is None else max_length,
        deadline=deadline,
    )
