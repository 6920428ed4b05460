"""Calls and sentences become spans that hang together, hold no text, and end."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind, StatusCode

from service.calls import RpcEnded, RpcMethod, RpcStarted
from service.config import TracingConfig
from service.errors import ConfigError
from service.request import Outcome
from service.stats import SequenceStats, TextStage, TextStats
from service.tracing import TracingObserver, create_tracing
from tests.fakes import FakeClock

METHOD = RpcMethod("unary", "dragoman.v1.TranslationService", "TranslateText")
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
WALL_SECONDS = 1_700_000_000.0


class _Traced:
    """An observer, and what it exported."""

    def __init__(self, sample_ratio: float = 1.0) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(sample_ratio))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.clock = FakeClock()
        self.observer = TracingObserver(
            provider, clock=self.clock, wall_clock=lambda: WALL_SECONDS + self.clock()
        )

    def start(self, key: str = "r#1", method: RpcMethod = METHOD, **metadata: str) -> None:
        started = RpcStarted(
            method=method, key=key, request_id="r", metadata=tuple(metadata.items())
        )
        self.observer.on_rpc_started(started)

    def end(self, key: str = "r#1", code: str = "OK") -> None:
        self.observer.on_rpc_ended(RpcEnded(method=METHOD, key=key, code=code, seconds=1.0))

    def spans(self) -> dict[str, list[ReadableSpan]]:
        spans: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            spans.setdefault(span.name.rpartition("/")[2], []).append(span)
        return spans


def _sentence(**changes: Any) -> SequenceStats:
    fields: dict[str, Any] = {
        "model": "en-pt",
        "outcome": Outcome.FINISHED,
        "source_tokens": 7,
        "target_tokens": 9,
        "queue_seconds": 0.5,
        "encode_seconds": 0.25,
        "decode_seconds": 2.0,
        "sentence_seconds": 2.75,
        "truncated": False,
        "admitted": True,
        "request_id": "r#1",
        "left": 10.0,
    }
    return SequenceStats(**{**fields, **changes})


def _text(stage: TextStage, began: float) -> TextStats:
    return TextStats(
        model="en-pt",
        request_id="r#1",
        stage=stage,
        began=began,
        seconds=0.125,
        num_texts=1,
        num_segments=1,
    )


def _times(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None and span.end_time is not None
    began, ended = (
        (time - int(WALL_SECONDS * 1e9)) / 1e9 for time in (span.start_time, span.end_time)
    )
    return round(began, 6), round(ended, 6)


def test_a_call_has_its_stages_in_their_order_and_with_their_times() -> None:
    traced = _Traced()
    traced.clock.now = 7.0
    traced.start()
    traced.observer.on_text(_text(TextStage.PREPARE, 7.0))
    traced.observer.on_sequence(_sentence())
    traced.observer.on_text(_text(TextStage.DETOKENIZE, 10.0))
    traced.clock.now = 10.25
    traced.end()
    spans = traced.spans()
    times = {name: _times(span) for name, (span,) in spans.items()}
    assert times == {
        "TranslateText": (7.0, 10.25),
        "prepare": (7.0, 7.125),
        "sentence": (7.25, 10.0),
        "queue": (7.25, 7.75),
        "encode": (7.75, 8.0),
        "decode": (8.0, 10.0),
        "detokenize": (10.0, 10.125),
    }
    (call,), (sentence,) = spans["TranslateText"], spans["sentence"]
    for name in ("prepare", "sentence", "detokenize"):
        assert spans[name][0].parent == call.context
    for name in ("queue", "encode", "decode"):
        assert spans[name][0].parent == sentence.context
    assert call.kind is SpanKind.SERVER
    assert dict(call.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": "dragoman.v1.TranslationService/TranslateText",
        "dragoman.request_id": "r",
        "dragoman.sentences": 1,
        "rpc.response.status_code": "OK",
    }


def test_the_span_of_the_client_is_the_parent() -> None:
    traced = _Traced(sample_ratio=0.0)
    traced.start(traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1")
    traced.end()
    (call,) = traced.spans()["TranslateText"]
    assert call.context is not None and call.parent is not None
    assert f"{call.context.trace_id:032x}" == TRACE
    assert f"{call.parent.span_id:016x}" == PARENT
    assert call.context.trace_state.get("vendor") == "1"


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-0-0-01", f"00-{TRACE}-{PARENT}-00"])
def test_what_nobody_samples_makes_no_spans(traceparent: str) -> None:
    traced = _Traced(sample_ratio=0.0)
    traced.start(traceparent=traceparent)
    traced.observer.on_text(_text(TextStage.PREPARE, 0.0))
    traced.observer.on_sequence(_sentence())
    traced.end()
    assert traced.spans() == {}


def test_probes_make_no_spans() -> None:
    traced = _Traced()
    traced.start(method=RpcMethod("unary", "grpc.health.v1.Health", "Check"))
    traced.end()
    assert traced.spans() == {}


def test_a_sentence_that_never_ran_has_a_queue_only() -> None:
    traced = _Traced()
    traced.start()
    traced.observer.on_sequence(
        _sentence(outcome=Outcome.EXPIRED, admitted=False, encode_seconds=0.0, decode_seconds=0.0)
    )
    assert set(traced.spans()) == {"sentence", "queue"}


def test_a_sentence_that_leaves_after_its_call_is_still_traced() -> None:
    traced = _Traced()
    traced.start()
    traced.end(code="CANCELLED")
    traced.observer.on_sequence(_sentence(outcome=Outcome.CANCELLED))
    spans = traced.spans()
    assert spans["sentence"][0].parent == spans["TranslateText"][0].context


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("OK", StatusCode.UNSET),
        ("CANCELLED", StatusCode.UNSET),
        ("INVALID_ARGUMENT", StatusCode.UNSET),
        ("INTERNAL", StatusCode.ERROR),
        ("UNAVAILABLE", StatusCode.ERROR),
    ],
)
def test_a_fault_of_the_server_is_an_error(code: str, status: StatusCode) -> None:
    traced = _Traced()
    traced.start()
    traced.end(code=code)
    (call,) = traced.spans()["TranslateText"]
    assert call.status.status_code is status
    assert (call.attributes or {})["rpc.response.status_code"] == code


def test_of_a_long_document_only_the_first_sentences_have_spans() -> None:
    traced = _Traced()
    traced.start()
    for _ in range(1000):
        traced.observer.on_sequence(_sentence())
    traced.end()
    spans = traced.spans()
    assert len(spans["sentence"]) == 64
    assert (spans["TranslateText"][0].attributes or {})["dragoman.sentences"] == 1000


def test_calls_that_ended_are_forgotten_in_time() -> None:
    traced = _Traced()
    for number in range(5000):
        traced.start(f"r#{number}")
        traced.end(f"r#{number}")
    assert len(traced.observer._calls) == 1024


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "max_queue_size"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip", "OTEL_EXPORTER_OTLP_COMPRESSION"),
    ],
)
def test_what_opentelemetry_does_not_take_is_a_fault_of_the_configuration(
    name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"^`OTEL_\*` in the environment is wrong: .*{told}"):
        create_tracing(TracingConfig(endpoint="http://127.0.0.1:1"), "1")
