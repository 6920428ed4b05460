"""Every field of the wire has one place in the request, and the other way round."""

from __future__ import annotations

import pytest
from google.rpc import code_pb2

from protos.dragoman.v1 import translation_pb2 as pb
from service.errors import SourceTooLongError
from service.request import FinishReason, Segment, Translation, TranslationOptions
from service.wire import request_from_proto, stream_request_from_proto, write_translation


def _options(**fields: object) -> TranslationOptions:
    message = pb.TranslateTextRequest(options=pb.TranslationOptions(**fields))  # type: ignore[arg-type]
    return request_from_proto(message, request_id="r", deadline=None).options


def test_unset_options_are_none() -> None:
    assert _options() == TranslationOptions()
    message = pb.TranslateTextRequest()
    assert request_from_proto(message, request_id="r", deadline=1.0).options == TranslationOptions()


def test_options_that_are_set_are_kept_even_when_they_are_zero() -> None:
    options = _options(
        beam_size=0,
        length_penalty=0.0,
        max_target_tokens=0,
        min_target_tokens=0,
        num_alternatives=2,
        return_scores=True,
    )
    assert options == TranslationOptions(
        beam_size=0,
        length_penalty=0.0,
        max_target_tokens=0,
        min_target_tokens=0,
        num_alternatives=2,
        return_scores=True,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("no_repeat_ngram_size", 0),
        ("repetition_penalty", 1.0),
        ("target_prefix", ""),
        ("sampling", pb.SamplingOptions()),
        ("return_alignment", True),
    ],
)
def test_options_of_later_versions_are_noticed_when_they_are_set(field: str, value: object) -> None:
    assert _options(**{field: value}).unimplemented == (field,)


def test_both_kinds_of_requests_read_alike() -> None:
    fields = {
        "source_language_code": "en",
        "target_language_code": "pt",
        "model": "m",
        "mime_type": "text/plain",
        "options": pb.TranslationOptions(beam_size=3),
    }
    unary = pb.TranslateTextRequest(contents=["a"], **fields)  # type: ignore[arg-type]
    streamed = pb.StreamTranslateTextRequest(id="1", content="a", **fields)  # type: ignore[arg-type]
    first = request_from_proto(unary, request_id="r", deadline=5.0)
    assert first == stream_request_from_proto(streamed, request_id="r", deadline=5.0)
    assert (first.contents, first.model, first.deadline) == (("a",), "m", 5.0)


def translation_to_proto(translation: Translation, *, with_scores: bool) -> pb.Translation:
    message = pb.Translation()
    write_translation(message, translation, with_scores=with_scores)
    return message


def test_an_error_is_a_status_and_nothing_else() -> None:
    message = translation_to_proto(
        Translation(translated_text="", error=SourceTooLongError("too long")), with_scores=True
    )
    assert (message.status.code, message.status.message) == (code_pb2.INVALID_ARGUMENT, "too long")
    assert not message.HasField("score")


def test_scores_are_told_only_when_asked_for() -> None:
    segment = Segment(
        source_start=1,
        source_end=3,
        target_start=2,
        target_end=5,
        score=-0.5,
        finish_reason=FinishReason.LENGTH,
    )
    translation = Translation(
        translated_text="x", alternatives=("y",), truncated=True, segments=(segment,)
    )
    message = translation_to_proto(translation, with_scores=False)
    assert message.truncated
    assert not message.HasField("score")
    assert not message.segments[0].HasField("score")
    assert not message.alternatives[0].HasField("score")
    assert message.segments[0].finish_reason == pb.FINISH_REASON_LENGTH
    assert message.segments[0].target_span == pb.Span(start=2, end=5)
    assert translation_to_proto(translation, with_scores=True).segments[0].score == -0.5
