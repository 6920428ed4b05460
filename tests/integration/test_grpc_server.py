"""The unary methods on a real server: right answers, right codes, one clear message, and the next request works."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2

from protos.dragoman.v1 import translation_pb2 as pb
from service.config import ServerConfig
from service.errors import (
    DeadlineError,
    DrainingError,
    EngineDeadError,
    EngineStepError,
    OverloadedError,
)
from service.wire import SERVICE_NAME
from tests.fake_core import FakeCore, make_served_model
from tests.grpc_serving import (
    Serving,
    assert_works,
    collect,
    fault_of,
    make_request,
    with_server,
)

_METHOD = {"grpc_type": "unary", "grpc_service": SERVICE_NAME, "grpc_method": "TranslateText"}


def test_texts_are_answered_in_order_by_a_named_model() -> None:
    async def test(server: Serving) -> None:
        request = make_request("one", "", "Two. Three!", target_language_code="pt-BR")
        answer = await server.stub.TranslateText(request)
        texts = [each.translated_text for each in answer.translations]
        assert texts == ["ONE", "", "TWO. THREE!"]
        assert (answer.model, answer.model_version) == ("en-pt", "1")
        assert (answer.source_language_code, answer.target_language_code) == ("en", "pt")
        segments = answer.translations[2].segments
        assert [(s.source_span.start, s.source_span.end) for s in segments] == [(0, 4), (5, 11)]
        assert [(s.target_span.start, s.target_span.end) for s in segments] == [(0, 4), (5, 11)]
        assert {s.finish_reason for s in segments} == {pb.FINISH_REASON_STOP}
        assert not answer.translations[0].HasField("status")
        assert not answer.translations[0].HasField("score")

    with_server(test)


def test_no_texts_are_an_empty_answer() -> None:
    async def test(server: Serving) -> None:
        answer = await server.stub.TranslateText(make_request())
        assert (len(answer.translations), answer.model) == (0, "en-pt")

    with_server(test)


def test_scores_and_alternatives_come_when_asked_for() -> None:
    async def test(server: Serving) -> None:
        options = {"num_alternatives": 1, "return_scores": True, "beam_size": 2}
        answer = await server.stub.TranslateText(make_request("one two", options=options))
        (translation,) = answer.translations
        assert translation.score == -0.5
        assert translation.segments[0].score == -0.5
        (alternative,) = translation.alternatives
        assert (alternative.translated_text, alternative.score) == ("TWO", -1.5)

    with_server(test)


@pytest.mark.parametrize(
    ("request_message", "code", "message"),
    [
        (
            make_request("a", source_language_code="xx"),
            "INVALID_ARGUMENT",
            "`source_language_code` must be one of en, pt",
        ),
        (
            make_request("a", target_language_code=""),
            "INVALID_ARGUMENT",
            "`target_language_code` must be one of",
        ),
        (
            make_request("a", target_language_code="en"),
            "NOT_FOUND",
            "No loaded model translates en to en",
        ),
        (
            make_request("a", model="none"),
            "NOT_FOUND",
            "`model` must be one of 'en-pt', but is 'none'",
        ),
        (
            make_request("a", options={"beam_size": 0}),
            "INVALID_ARGUMENT",
            "`beam_size` must be in [1, 16], but is 0.",
        ),
        (
            make_request("a", options={"beam_size": 1000}),
            "INVALID_ARGUMENT",
            "in [1, 16], but is 1000.",
        ),
        (make_request("a", mime_type="text/html"), "UNIMPLEMENTED", "text/html"),
        (make_request("a", options={"target_prefix": "b"}), "UNIMPLEMENTED", "`target_prefix`"),
        (
            make_request("a", options={"sampling": pb.SamplingOptions()}),
            "UNIMPLEMENTED",
            "`sampling`",
        ),
        (
            make_request("a", options={"no_repeat_ngram_size": 0}),
            "UNIMPLEMENTED",
            "`no_repeat_ngram_size`",
        ),
        (
            make_request("a", options={"repetition_penalty": 1}),
            "UNIMPLEMENTED",
            "`repetition_penalty`",
        ),
        (
            make_request("a", options={"return_alignment": True}),
            "UNIMPLEMENTED",
            "`return_alignment`",
        ),
        (make_request(*["a"] * 1025), "INVALID_ARGUMENT", "at most 1024 texts, but has 1025"),
    ],
)
def test_a_bad_request_gets_its_code_and_one_clear_message(
    request_message: pb.TranslateTextRequest, code: str, message: str
) -> None:
    async def test(server: Serving) -> None:
        error = await fault_of(server.stub.TranslateText(request_message))
        assert error.code().name == code
        assert message in (error.details() or "")
        assert server.metric("grpc_server_handled_total", **_METHOD, grpc_code=code) == 1
        assert server.metric("dragoman_rejected_total", reason="invalid") == 1
        await assert_works(server)

    with_server(test)


def test_a_text_of_five_megabytes_fails_alone() -> None:
    async def test(server: Serving) -> None:
        answer = await server.stub.TranslateText(make_request("one", "x" * 5_000_000, "two"))
        assert [each.translated_text for each in answer.translations] == ["ONE", "", "TWO"]
        status = answer.translations[1].status
        assert status.code == code_pb2.INVALID_ARGUMENT
        assert (
            status.message
            == "A text must have at most 100000 characters, but this one has 5000000."
        )
        assert not answer.translations[0].HasField("status")

    with_server(test)


@pytest.mark.parametrize(
    "text", ["x" * 90_000, "a b\x00c\x1b[31md\x07", "\x01\x02", "é\u0301" * 500]
)
def test_odd_texts_come_back_whole(text: str) -> None:
    async def test(server: Serving) -> None:
        answer = await server.stub.TranslateText(make_request(text))
        assert answer.translations[0].translated_text == text.upper()

    with_server(test)


def test_bytes_that_are_no_text_are_an_invalid_argument() -> None:
    async def test(server: Serving) -> None:
        lone_surrogate = b"\x0a\x03\xed\xa0\x80" + make_request().SerializeToString()
        for method, message in (
            ("TranslateText", lone_surrogate),
            ("TranslateText", b"\xff\xff\xff"),
        ):
            call = server.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
            error = await fault_of(call(message))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "not UTF-8" in (error.details() or "")
        stream = server.channel.stream_stream(f"/{SERVICE_NAME}/StreamTranslateText")
        error = await fault_of(collect(stream(iter([lone_surrogate]))))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        await assert_works(server)

    with_server(test)


@pytest.mark.parametrize("path", [f"/{SERVICE_NAME}/TranslateText", "/grpc.health.v1.Health/Watch"])
def test_a_call_that_is_closed_without_its_message_is_answered(path: str) -> None:
    async def test(server: Serving) -> None:
        error = await fault_of(collect(server.channel.stream_stream(path)(iter([]), timeout=10)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "The call has no message."
        await assert_works(server)

    with_server(test)


def test_a_message_at_the_limit_works_and_one_byte_over_is_refused_with_the_limit() -> None:
    limit = 100_000
    request = make_request(
        "x" * (limit - len(make_request("x" * 99_000).SerializeToString()) + 99_000)
    )
    assert request.ByteSize() == limit

    async def test(server: Serving) -> None:
        await server.stub.TranslateText(request)
        request.contents[0] += "x"
        error = await fault_of(server.stub.TranslateText(request))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(limit) in (error.details() or "")
        await assert_works(server)

    config = ServerConfig(listen="127.0.0.1:0", max_receive_message_bytes=limit)
    with_server(test, config=config)


def test_a_full_queue_says_when_to_try_again() -> None:
    core = FakeCore()
    core.refuse = OverloadedError("The queue is full.", retry_after_seconds=2.5)

    async def test(server: Serving) -> None:
        error = await fault_of(server.stub.TranslateText(make_request("a")))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailers = dict(error.trailing_metadata() or ())
        assert trailers["retry-after"] == "3"
        status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 2500
        assert server.metric("dragoman_rejected_total", reason="queue_full") == 1
        core.refuse = None
        await assert_works(server)

    with_server(test, core)


@pytest.mark.parametrize(
    ("refusal", "code", "reason"),
    [
        (DeadlineError("Too late."), grpc.StatusCode.DEADLINE_EXCEEDED, "deadline"),
        (DrainingError("Going."), grpc.StatusCode.UNAVAILABLE, "draining"),
        (EngineDeadError("Dead."), grpc.StatusCode.UNAVAILABLE, None),
    ],
)
def test_refusals_of_the_core_have_their_codes(
    refusal: Any, code: grpc.StatusCode, reason: str | None
) -> None:
    core = FakeCore()
    core.refuse = refusal

    async def test(server: Serving) -> None:
        error = await fault_of(server.stub.TranslateText(make_request("a")))
        assert (error.code(), error.details()) == (code, str(refusal))
        if reason:
            assert server.metric("dragoman_rejected_total", reason=reason) == 1

    with_server(test, core)


def test_a_failed_step_is_the_status_of_its_texts_only() -> None:
    core = FakeCore()
    core.fail = lambda each: (
        EngineStepError("A step failed.") if len(each.source_ids) == 3 else None
    )

    async def test(server: Serving) -> None:
        answer = await server.stub.TranslateText(make_request("one", "bad luck", "two"))
        codes = [each.status.code for each in answer.translations]
        assert codes == [code_pb2.OK, code_pb2.INTERNAL, code_pb2.OK]

    with_server(test, core)


def test_a_fault_of_ours_is_internal_names_the_request_and_leaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = FakeCore()

    def explode(_: object) -> None:
        raise RuntimeError("".join(["se", "cret text of a user"]))

    core.fail = explode  # type: ignore[assignment]

    async def test(server: Serving) -> None:
        call = server.stub.TranslateText(make_request("a"), metadata=(("x-request-id", "abc-123"),))
        error = await fault_of(call)
        assert error.code() is grpc.StatusCode.INTERNAL
        assert (
            error.details() == "Internal error; the server's log tells more about request abc-123."
        )
        assert "RuntimeError" in caplog.text
        assert "secret" not in caplog.text
        core.fail = lambda _: None
        await assert_works(server)

    with_server(test, core)


@pytest.mark.parametrize("sent", ["abc-123", "", "x" * 500])
def test_the_request_id_comes_back_or_is_made(sent: str) -> None:
    async def test(server: Serving) -> None:
        call = server.stub.TranslateText(make_request("a"), metadata=(("x-request-id", sent),))
        await call
        trailers = dict(await call.trailing_metadata())
        if sent == "abc-123":
            assert trailers["x-request-id"] == sent
        else:
            assert len(trailers["x-request-id"]) == 32

    with_server(test)


def test_the_deadline_of_a_call_reaches_its_sequences() -> None:
    core = FakeCore()

    async def test(server: Serving) -> None:
        await server.stub.TranslateText(make_request("a"), timeout=20)
        await server.stub.TranslateText(make_request("a"))
        first, second = core.taken
        assert first.deadline is not None
        assert second.deadline is None
        assert first.request_id != second.request_id

    with_server(test, core)


@pytest.mark.parametrize("kind", ["cancel", "deadline"])
def test_a_client_that_leaves_stops_the_work(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    core = FakeCore()
    core.hold = asyncio.Event()

    async def test(server: Serving) -> None:
        timeout = 0.3 if kind == "deadline" else None
        call = server.stub.TranslateText(make_request("a", "b"), timeout=timeout)
        task = asyncio.ensure_future(_fault_or_cancel(call))
        while not core.taken:
            await asyncio.sleep(0.005)
        if kind == "cancel":
            call.cancel()
        await task
        while len(core.aborted) < 2:
            await asyncio.sleep(0.005)
        code = "CANCELLED" if kind == "cancel" else "DEADLINE_EXCEEDED"
        assert server.metric("grpc_server_handled_total", **_METHOD, grpc_code=code) == 1
        assert core.hold is not None
        core.hold.set()
        await assert_works(server)
        assert [record for record in caplog.records if record.levelno > logging.INFO] == []

    with_server(test, core)


async def _fault_or_cancel(call: Any) -> None:
    try:
        await call
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return
    raise AssertionError("the call went well")


def test_models_are_listed_and_filtered() -> None:
    models = [
        make_served_model(),
        make_served_model(name="pt-en", source_language="pt", target_language="en"),
    ]

    async def test(server: Serving) -> None:
        answer = await server.stub.ListModels(pb.ListModelsRequest())
        assert [model.name for model in answer.models] == ["en-pt", "pt-en"]
        model = answer.models[0]
        assert (model.source_language_code, model.target_language_code) == ("en", "pt")
        assert (model.version, model.precision, model.license) == ("1", "float32", "MPL-2.0")
        assert (model.default_beam_size, model.default_length_penalty) == (4, 1.0)
        assert (model.max_source_tokens, model.max_target_tokens) == (64, 128)
        assert [(score.metric, score.value) for score in model.quality_scores] == [("BLEU", 40.0)]
        answer = await server.stub.ListModels(pb.ListModelsRequest(source_language_code="pt-BR"))
        assert [model.name for model in answer.models] == ["pt-en"]

    with_server(test, models=models)


def test_requests_are_routed_by_pair() -> None:
    cores = FakeCore(), FakeCore()
    models = [
        make_served_model(cores[0]),
        make_served_model(cores[1], name="pt-en", source_language="pt", target_language="en"),
    ]

    async def test(server: Serving) -> None:
        request = make_request("oi", source_language_code="pt", target_language_code="en")
        answer = await server.stub.TranslateText(request)
        assert answer.model == "pt-en"
        assert (len(cores[0].taken), len(cores[1].taken)) == (0, 1)

    with_server(test, models=models)
