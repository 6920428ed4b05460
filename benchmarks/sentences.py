"""Texts of one sentence, and the sequences that the server makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.corpus import USUAL_TOKENS
from export.bundle import Manifest
from model.tokenizer import Tokenizer
from service.request import DecodingOptions
from service.request import Sequence as Sentence
from service.segmenter import Segmenter

__all__ = ["create_sentences", "keep_single_sentences", "keep_usual_lengths"]


def keep_single_sentences(
    texts: Sequence[str], manifest: Manifest, tokenizer: Tokenizer
) -> list[str]:
    """Leave out texts that the server would cut: a call of one text is then one sentence."""
    segmenter = Segmenter(manifest.source_language)
    lengths = [len(ids) for ids in tokenizer.encode_source_batch(texts)]
    return [
        text
        for text, length in zip(texts, lengths, strict=True)
        if len(segmenter.segment(text)) == 1 and length <= manifest.limits.max_source_tokens
    ]


def keep_usual_lengths(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Those of the length that other workloads take, too; all, when there are none."""
    lengths = [len(ids) for ids in tokenizer.encode_source_batch(texts)]
    usual = [text for text, length in zip(texts, lengths, strict=True) if length in USUAL_TOKENS]
    return usual or list(texts)


def create_sentences(
    texts: Sequence[str], manifest: Manifest, tokenizer: Tokenizer
) -> list[Sentence]:
    """What `service.translator` makes of texts of one sentence, with the options that a bundle has by default."""
    limits, decoding = manifest.limits, manifest.decoding
    options = DecodingOptions(
        beam_size=decoding.beam_size,
        length_penalty=decoding.length_penalty,
        max_target_tokens=limits.max_target_tokens,
    )
    return [
        Sentence(
            sequence_id=number,
            request_id=str(number),
            source_ids=tuple(source_ids),
            options=options,
            max_length=min(
                limits.max_target_tokens,
                int(limits.target_length_ratio * len(source_ids)) + limits.target_length_offset,
            ),
        )
        for number, source_ids in enumerate(tokenizer.encode_source_batch(texts))
    ]
