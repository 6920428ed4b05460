"""Stages 1 and 10 of 10, the words: proto messages to requests, translations to proto messages."""

from __future__ import annotations

from export.bundle import Manifest
from protos.dragoman.v1 import translation_pb2 as pb
from service.interceptors import status_of
from service.request import (
    FinishReason,
    Segment,
    Translation,
    TranslationOptions,
    TranslationRequest,
)

__all__ = [
    "SERVICE_NAME",
    "model_to_proto",
    "request_from_proto",
    "stream_request_from_proto",
    "write_translation",
]

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

_UNIMPLEMENTED_WHEN_PRESENT = (
    "no_repeat_ngram_size",
    "repetition_penalty",
    "target_prefix",
    "sampling",
)
_FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


_NO_OPTIONS = TranslationOptions()


def request_from_proto(
    message: pb.TranslateTextRequest, *, request_id: str, deadline: float | None
) -> TranslationRequest:
    """Read a unary request."""
    return TranslationRequest(
        contents=tuple(message.contents),
        source_language_code=message.source_language_code,
        target_language_code=message.target_language_code,
        model=message.model,
        mime_type=message.mime_type,
        options=_options_from_proto(message.options)
        if message.HasField("options")
        else _NO_OPTIONS,
        request_id=request_id,
        deadline=deadline,
    )


def stream_request_from_proto(
    message: pb.StreamTranslateTextRequest, *, request_id: str, deadline: float | None
) -> TranslationRequest:
    """Read one text of a stream."""
    return TranslationRequest(
        contents=(message.content,),
        source_language_code=message.source_language_code,
        target_language_code=message.target_language_code,
        model=message.model,
        mime_type=message.mime_type,
        options=_options_from_proto(message.options)
        if message.HasField("options")
        else _NO_OPTIONS,
        request_id=request_id,
        deadline=deadline,
    )


def write_translation(
    message: pb.Translation, translation: Translation, *, with_scores: bool
) -> None:
    """Write the answer to one text, in its place: a message that is made apart is copied when it is put there."""
    if translation.error is not None:
        message.status.CopyFrom(status_of(translation.error))
        return
    message.translated_text = translation.translated_text
    message.truncated = translation.truncated
    if translation.score is not None:
        message.score = translation.score
    scores = translation.alternative_scores or (None,) * len(translation.alternatives)
    for text, score in zip(translation.alternatives, scores, strict=True):
        message.alternatives.add(translated_text=text, score=score)
    for segment in translation.segments:
        _write_segment(message.segments.add(), segment, with_scores)


def model_to_proto(manifest: Manifest) -> pb.Model:
    """Describe a loaded model."""
    return pb.Model(
        name=manifest.name,
        version=manifest.version,
        source_language_code=manifest.source_language,
        target_language_code=manifest.target_language,
        precision=manifest.precision,
        license=manifest.license,
        default_beam_size=manifest.decoding.beam_size,
        default_length_penalty=manifest.decoding.length_penalty,
        max_source_tokens=manifest.limits.max_source_tokens,
        max_target_tokens=manifest.limits.max_target_tokens,
        quality_scores=[
            pb.QualityScore(
                test_set=score.test_set,
                metric=score.metric,
                value=score.value,
                signature=score.signature,
            )
            for score in manifest.scores
        ],
    )


def _options_from_proto(message: pb.TranslationOptions) -> TranslationOptions:
    def optional(name: str) -> float | None:
        return getattr(message, name) if message.HasField(name) else None

    unimplemented = [n for n in _UNIMPLEMENTED_WHEN_PRESENT if message.HasField(n)]
    if message.return_alignment:
        unimplemented.append("return_alignment")
    return TranslationOptions(
        beam_size=optional("beam_size"),  # type: ignore[arg-type]
        length_penalty=optional("length_penalty"),
        max_target_tokens=optional("max_target_tokens"),  # type: ignore[arg-type]
        min_target_tokens=optional("min_target_tokens"),  # type: ignore[arg-type]
        num_alternatives=message.num_alternatives,
        return_scores=message.return_scores,
        unimplemented=tuple(unimplemented),
    )


def _write_segment(message: pb.Segment, segment: Segment, with_scores: bool) -> None:
    message.finish_reason = _FINISH_REASONS[segment.finish_reason]
    source, target = message.source_span, message.target_span
    source.start, source.end = segment.source_start, segment.source_end
    target.start, target.end = segment.target_start, segment.target_end
    if with_scores:
        message.score = segment.score
