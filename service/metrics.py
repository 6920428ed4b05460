"""What the core and the calls tell, as the metrics of README.md. Only this and `tallies.py` know Prometheus.

A registry of our own, so that nothing else in the process shows up. Label values come from closed sets: loaded models,
registered methods, and the constants below; what is outside counts as "other".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import prometheus_client
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from service.calls import STATUS_NAMES, RpcEnded, RpcMethod, RpcStarted
from service.errors import ConfigError
from service.request import Outcome
from service.stats import Gauges, SequenceStats, StepStats, TextStage, TextStats
from service.tallies import Number, Tallies

__all__ = [
    "GUARDS",
    "REJECTIONS",
    "MetricsServer",
    "ModelInfo",
    "ModelLimits",
    "PrometheusObserver",
]

_OTHER = "other"
REJECTIONS = ("queue_full", "deadline", "invalid", "rate", "draining")
GUARDS = ("truncated", "repetition", "copied", "placeholder")
_RPC_LABELS = ("grpc_type", "grpc_service", "grpc_method")
_REQUEST_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
)
_QUEUE_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
_STEP_BUCKETS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024)
_ROW_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)

_GAUGES = {
    "dragoman_queue_depth": "Sentences waiting.",
    "dragoman_running_sequences": "Sentences being decoded.",
    "dragoman_running_rows": "Decoder rows in use.",
    "dragoman_kv_cache_bytes": "Bytes of live rows in the caches.",
    "dragoman_kv_reserved_bytes": "Memory held for the caches.",
    "dragoman_queue_limit": "Sentences that may wait.",
    "dragoman_row_limit": "Decoder rows that may run, all workers together.",
    "dragoman_kv_limit_bytes": "Bytes that running sentences may reserve, all workers together.",
}
_HISTOGRAMS = {
    "dragoman_queue_seconds": ("Time that a sentence waited.", _QUEUE_BUCKETS),
    "dragoman_encode_seconds": ("Encoder time of a sentence's batch.", _STEP_BUCKETS),
    "dragoman_decode_seconds": ("Time that a sentence was decoded.", _REQUEST_BUCKETS),
    "dragoman_sentence_seconds": ("Time of a sentence, all told.", _REQUEST_BUCKETS),
    "dragoman_step_seconds": ("Time of a step of the engine.", _STEP_BUCKETS),
    "dragoman_step_rows": ("Decoder rows in a step.", _ROW_BUCKETS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The labels of `dragoman_model_info`."""

    model: str
    version: str
    source: str
    target: str
    provider: str
    precision: str
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """How much a loaded model may hold, all its workers together: what its gauges are measured against."""

    queue: int
    """Sentences that may wait."""
    rows: int
    kv_bytes: int


class _Families:
    """Every metric, before labels."""

    def __init__(self, tallies: Tallies) -> None:
        counter, histogram = tallies.add_counter, tallies.add_histogram
        self.rpc_started = counter("grpc_server_started_total", "Calls begun.", *_RPC_LABELS)
        self.rpc_handled = counter(
            "grpc_server_handled_total", "Calls ended, by status code.", *_RPC_LABELS, "grpc_code"
        )
        self.rpc_seconds = histogram(
            "grpc_server_handling_seconds", "Time of a call.", _RPC_LABELS, _REQUEST_BUCKETS
        )
        self.rejected = counter("dragoman_rejected_total", "Requests refused.", "reason")
        for reason in REJECTIONS:
            self.rejected.labels(reason)
        self.sentences = counter(
            "dragoman_sentences_total", "Sentences that left.", "model", "outcome"
        )
        self.tokens = counter(
            "dragoman_tokens_total",
            "Tokens of sentences, EOS included, no padding.",
            "model",
            "side",
        )
        self.padded_tokens = counter(
            "dragoman_padded_tokens_total",
            "Positions that were computed, padding included.",
            "model",
            "graph",
        )
        self.guards = counter(
            "dragoman_guard_total", "Guards that acted on an answer.", "model", "guard"
        )
        self.model_info = tallies.add_gauge(
            "dragoman_model_info",
            "A loaded model.",
            *(each.name for each in dataclasses.fields(ModelInfo)),
        )
        self.gauges = {
            name: tallies.add_gauge(name, text, "model") for name, text in _GAUGES.items()
        }
        self.histograms = {
            name: histogram(name, text, ("model",), buckets)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        self.text_seconds = histogram(
            "dragoman_text_seconds",
            "Time that the texts of a request took to prepare or to detokenize.",
            ("model", "stage"),
            _QUEUE_BUCKETS,
        )


class _ModelMetrics:
    """The metrics of one model, looked up once: a step feeds a dozen of them."""

    def __init__(self, families: _Families, model: str) -> None:
        gauges = {name: each.labels(model) for name, each in families.gauges.items()}
        self.queue_depth = gauges["dragoman_queue_depth"]
        self.running_sequences = gauges["dragoman_running_sequences"]
        self.running_rows = gauges["dragoman_running_rows"]
        self.kv_cache_bytes = gauges["dragoman_kv_cache_bytes"]
        self.kv_reserved_bytes = gauges["dragoman_kv_reserved_bytes"]
        self.queue_limit = gauges["dragoman_queue_limit"]
        self.row_limit = gauges["dragoman_row_limit"]
        self.kv_limit_bytes = gauges["dragoman_kv_limit_bytes"]
        histograms = {name: each.labels(model) for name, each in families.histograms.items()}
        self.queue_seconds = histograms["dragoman_queue_seconds"]
        self.encode_seconds = histograms["dragoman_encode_seconds"]
        self.decode_seconds = histograms["dragoman_decode_seconds"]
        self.sentence_seconds = histograms["dragoman_sentence_seconds"]
        self.step_seconds = histograms["dragoman_step_seconds"]
        self.step_rows = histograms["dragoman_step_rows"]
        self.text_seconds = {s: families.text_seconds.labels(model, s.value) for s in TextStage}
        self.sentences = {o: families.sentences.labels(model, o.value) for o in Outcome}
        self.source_tokens = families.tokens.labels(model, "source")
        self.target_tokens = families.tokens.labels(model, "target")
        self.encoder_padded_tokens = families.padded_tokens.labels(model, "encoder")
        self.decoder_padded_tokens = families.padded_tokens.labels(model, "decoder")
        self.guards = {name: families.guards.labels(model, name) for name in (*GUARDS, _OTHER)}


class _MethodMetrics:
    """The metrics of one method, looked up once."""

    def __init__(self, families: _Families, method: RpcMethod) -> None:
        self._labels = (method.kind, method.service, method.name)
        self._handled = families.rpc_handled
        self.started = families.rpc_started.labels(*self._labels)
        self.seconds = families.rpc_seconds.labels(*self._labels)

    def handled(self, code: str) -> Number:
        """The counter of calls that ended with this code."""
        return self._handled.labels(*self._labels, code)


class PrometheusObserver:
    """Receives stats of the core and of calls; thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register every metric."""
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._tallies = Tallies()
        self._lock = self._tallies.lock
        self._families = _Families(self._tallies)
        self._models: dict[str, _ModelMetrics] = {}
        self._methods: dict[RpcMethod, _MethodMetrics] = {}
        registry.register(self._tallies)

    def start_model(self, info: ModelInfo, limits: ModelLimits) -> None:
        """Admit a loaded model as a label, with all its counters at zero."""
        with self._lock:
            metrics = self._models[info.model] = _ModelMetrics(self._families, info.model)
            metrics.queue_limit.value = limits.queue
            metrics.row_limit.value = limits.rows
            metrics.kv_limit_bytes.value = limits.kv_bytes
            labels = [str(value) for value in dataclasses.astuple(info)]
            self._families.model_info.labels(*labels).value = 1

    def start_methods(self, methods: Iterable[RpcMethod]) -> None:
        """Show the registered methods with all their counters at zero: a rate sees the first error, too."""
        with self._lock:
            for method in methods:
                for code in STATUS_NAMES:
                    self._method(method).handled(code)

    def on_step(self, stats: StepStats) -> None:
        """A step ended."""
        with self._lock:
            model = self._model(stats.model)
            model.step_seconds.observe(stats.step_seconds)
            model.step_rows.observe(stats.num_rows)
            model.encoder_padded_tokens.value += stats.encoder_padded_tokens
            model.decoder_padded_tokens.value += stats.decoder_padded_tokens

    def on_sequence(self, stats: SequenceStats) -> None:
        """A sentence left."""
        with self._lock:
            model = self._model(stats.model)
            model.sentences[stats.outcome].value += 1
            model.queue_seconds.observe(stats.queue_seconds)
            model.sentence_seconds.observe(stats.sentence_seconds)
            if stats.admitted:
                model.encode_seconds.observe(stats.encode_seconds)
                model.decode_seconds.observe(stats.decode_seconds)
                model.source_tokens.value += stats.source_tokens
            model.target_tokens.value += stats.target_tokens

    def on_text(self, stats: TextStats) -> None:
        """The texts of a request went through a stage."""
        with self._lock:
            self._model(stats.model).text_seconds[stats.stage].observe(stats.seconds)

    def on_gauges(self, gauges: Gauges) -> None:
        """What a model holds has changed."""
        with self._lock:
            model = self._model(gauges.model)
            model.queue_depth.value = gauges.queue_depth
            model.running_sequences.value = gauges.running_sequences
            model.running_rows.value = gauges.running_rows
            model.kv_cache_bytes.value = gauges.kv_cache_bytes
            model.kv_reserved_bytes.value = gauges.kv_reserved_bytes

    def on_rejected(self, reason: str) -> None:
        """A request was refused."""
        with self._lock:
            self._families.rejected.labels(reason if reason in REJECTIONS else _OTHER).value += 1

    def on_guard(self, model: str, guard: str) -> None:
        """A guard acted on an answer."""
        with self._lock:
            self._model(model).guards[guard if guard in GUARDS else _OTHER].value += 1

    def on_rpc_started(self, started: RpcStarted) -> None:
        """A call began."""
        with self._lock:
            self._method(started.method).started.value += 1

    def on_rpc_ended(self, ended: RpcEnded) -> None:
        """A call ended."""
        with self._lock:
            method = self._method(ended.method)
            method.handled(ended.code).value += 1
            method.seconds.observe(ended.seconds)

    def _method(self, method: RpcMethod) -> _MethodMetrics:
        """Registered methods only are told of. The lock is held."""
        known = self._methods.get(method)
        if known is None:
            known = self._methods[method] = _MethodMetrics(self._families, method)
        return known

    def _model(self, name: str) -> _ModelMetrics:
        """Loaded models have a label of their own. The lock is held."""
        known = self._models.get(name) or self._models.get(_OTHER)
        if known is None:
            known = self._models[_OTHER] = _ModelMetrics(self._families, _OTHER)
        return known


class MetricsServer:
    """Answers scrapes on a port of its own, from a thread of its own."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Start to listen.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                port, addr=host, registry=registry
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"Cannot listen on {host}:{port} for metrics (`metrics.listen`): {reason}."
            ) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
