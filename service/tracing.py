"""The only OpenTelemetry code: calls, sentences and their stages as spans. Needs the extra `tracing`.

    dragoman.v1.TranslationService/TranslateText      the call; its parent is the client's span (W3C `traceparent`)
        prepare                                       segment and tokenize
        sentence                                      one for each, the first `_MAX_SENTENCES` of a call
            queue, encode, decode
        detokenize                                    hypotheses to texts

Spans are made when a stage is over, from the times that the core tells; so nothing waits for tracing. Attributes hold
counts and names from closed sets, and the request id; never a text.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.exporter import InvalidCompressionValueException
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from service.calls import RpcEnded, RpcStarted
from service.config import TracingConfig
from service.errors import ConfigError
from service.stats import Gauges, SequenceStats, StepStats, TextStats

__all__ = ["TracingObserver", "create_tracing"]

logger = logging.getLogger(__name__)

_SCOPE = "dragoman"
_CONTEXT_KEYS = ("traceparent", "tracestate")
_SERVER_FAULTS = (
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
)
"""What OpenTelemetry's conventions for gRPC servers count as an error."""
_MAX_SENTENCES = 64
"""A document of thousands of sentences must not drown the collector."""
_MAX_ENDED_CALLS = 1024
"""A cancelled call ends before its sentences leave: so many are remembered."""
_EXPORT_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
"""How long a collector may take for the last spans: a server that ends must not wait for one that is gone."""
_NANOSECONDS = 1_000_000_000


def create_tracing(config: TracingConfig, version: str) -> TracingObserver:
    """Send spans to the collector of the configuration. `OTEL_*` in the environment names service and resource.

    Raises:
        ConfigError: A value of `OTEL_*` is one that OpenTelemetry does not take.
    """
    try:
        return _create(config, version)
    except (ValueError, InvalidCompressionValueException) as error:
        text = str(error).rstrip(".")
        raise ConfigError(f"`OTEL_*` in the environment is wrong: {text}.") from error


def _create(config: TracingConfig, version: str) -> TracingObserver:
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(config.sample_ratio),
        resource=Resource.create({"service.name": "dragoman", "service.version": version}),
        shutdown_on_exit=False,  # `close` does it, and does not wait
    )
    exporter = OTLPSpanExporter(endpoint=config.endpoint, timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return TracingObserver(provider, give_up=exporter.shutdown)


@dataclass(slots=True)
class _CallSpan:
    """The span of a call, and what its children need."""

    span: Span
    context: Context
    epoch_seconds: float
    """What must be added to the monotonic clock."""
    num_sentences: int = 0


class TracingObserver:
    """Makes spans of what it is told; thread-safe."""

    def __init__(
        self,
        provider: TracerProvider,
        *,
        give_up: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take who samples and exports, and what ends an export that hangs. The clock must be that of the core."""
        self._provider = provider
        self._give_up = give_up
        self._tracer = provider.get_tracer(_SCOPE)
        self._propagator = TraceContextTextMapPropagator()
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._calls: dict[str, _CallSpan] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def close(self) -> None:
        """Export what is left, for `_CLOSE_SECONDS` at most: what the collector has not taken by then is lost."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
        if closing.is_alive():
            logger.warning("The collector has not taken the last spans in %s s", _CLOSE_SECONDS)
            self._give_up()

    def on_rpc_started(self, started: RpcStarted) -> None:
        method = started.method
        if method.service.startswith("grpc."):  # probes and reflection
            return
        carrier = {key: str(value) for key, value in started.metadata if key in _CONTEXT_KEYS}
        now = self._clock()
        epoch_seconds = self._wall_clock() - now
        span = self._tracer.start_span(
            f"{method.service}/{method.name}",
            self._propagator.extract(carrier),
            SpanKind.SERVER,
            {
                "rpc.system.name": "grpc",
                "rpc.method": f"{method.service}/{method.name}",
                "dragoman.request_id": started.request_id,
            },
            start_time=_nanoseconds(now + epoch_seconds),
        )
        if span.is_recording():
            with self._lock:
                self._calls[started.key] = _CallSpan(span, set_span_in_context(span), epoch_seconds)

    def on_rpc_ended(self, ended: RpcEnded) -> None:
        with self._lock:
            call = self._calls.get(ended.key)
            if call is None:
                return
            self._ended[ended.key] = None
            if len(self._ended) > _MAX_ENDED_CALLS:
                oldest, _ = self._ended.popitem(last=False)
                del self._calls[oldest]
            call.span.set_attribute("dragoman.sentences", call.num_sentences)
        call.span.set_attribute("rpc.response.status_code", ended.code)
        if ended.code in _SERVER_FAULTS:
            call.span.set_attribute("error.type", ended.code)
            call.span.set_status(Status(StatusCode.ERROR))
        call.span.end(_nanoseconds(self._clock() + call.epoch_seconds))

    def on_text(self, stats: TextStats) -> None:
        call = self._calls.get(stats.request_id)
        if call is None:
            return
        attributes: dict[str, AttributeValue] = {
            "dragoman.model": stats.model,
            "dragoman.texts": stats.num_texts,
            "dragoman.segments": stats.num_segments,
        }
        began = stats.began + call.epoch_seconds
        self._span(stats.stage.value, call.context, began, stats.seconds, attributes)

    def on_sequence(self, stats: SequenceStats) -> None:
        with self._lock:
            call = self._calls.get(stats.request_id)
            if call is None:
                return
            call.num_sentences += 1
            if call.num_sentences > _MAX_SENTENCES:
                return
        arrived = stats.left - stats.sentence_seconds + call.epoch_seconds
        attributes: dict[str, AttributeValue] = {
            "dragoman.model": stats.model,
            "dragoman.outcome": stats.outcome.value,
            "dragoman.source_tokens": stats.source_tokens,
            "dragoman.target_tokens": stats.target_tokens,
            "dragoman.truncated": stats.truncated,
        }
        sentence = self._span("sentence", call.context, arrived, stats.sentence_seconds, attributes)
        context = set_span_in_context(sentence)
        self._span("queue", context, arrived, stats.queue_seconds)
        if stats.admitted:
            admitted = arrived + stats.queue_seconds
            self._span("encode", context, admitted, stats.encode_seconds)
            encoded = admitted + stats.encode_seconds
            self._span("decode", context, encoded, stats.decode_seconds)

    def on_step(self, stats: StepStats) -> None:
        """A step belongs to many calls: it has no span."""

    def on_gauges(self, gauges: Gauges) -> None:
        """Gauges are metrics."""

    def on_rejected(self, reason: str) -> None:
        """The status of the call says so."""

    def on_guard(self, model: str, guard: str) -> None:
        """The attribute `dragoman.truncated` says so."""

    def _span(
        self,
        name: str,
        context: Context,
        began: float,
        seconds: float,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> Span:
        """Make a span of something that is over; times are seconds of the wall clock."""
        span = self._tracer.start_span(
            name, context, attributes=attributes, start_time=_nanoseconds(began)
        )
        span.end(_nanoseconds(began + seconds))
        return span


def _nanoseconds(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)
