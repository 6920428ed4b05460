"""The metrics say what happened, under labels from closed sets."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from service.calls import STATUS_NAMES, RpcEnded, RpcMethod, RpcStarted
from service.errors import ConfigError
from service.metrics import MetricsServer, ModelInfo, ModelLimits, PrometheusObserver
from service.request import Outcome
from service.stats import Gauges, SequenceStats, StepStats, TextStage, TextStats

INFO = ModelInfo(
    model="en-pt",
    version="1",
    source="en",
    target="pt",
    provider="cpu",
    precision="int8",
    threads=2,
)
LIMITS = ModelLimits(queue=100, rows=256, kv_bytes=1000)
METHOD = RpcMethod("unary", "service", "Method")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def observer(registry: CollectorRegistry) -> PrometheusObserver:
    observer = PrometheusObserver(registry)
    observer.start_model(INFO, LIMITS)
    observer.start_methods([METHOD])
    return observer


def _sequence(**changes: object) -> SequenceStats:
    fields: dict[str, object] = {
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
    return SequenceStats(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_loaded_model_shows_all_its_series_from_the_start(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    assert registry.get_sample_value("dragoman_queue_depth", {"model": "en-pt"}) == 0
    for outcome in Outcome:
        labels = {"model": "en-pt", "outcome": outcome.value}
        assert registry.get_sample_value("dragoman_sentences_total", labels) == 0
    labels = {
        "model": "en-pt", "version": "1", "source": "en", "target": "pt", "provider": "cpu",
        "precision": "int8", "threads": "2",
    }  # fmt: skip
    assert registry.get_sample_value("dragoman_model_info", labels) == 1


def test_a_sentence_counts_its_outcome_tokens_and_times(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.on_sequence(_sequence())
    model = {"model": "en-pt"}
    value = registry.get_sample_value
    assert value("dragoman_sentences_total", {**model, "outcome": "finished"}) == 1
    assert value("dragoman_tokens_total", {**model, "side": "source"}) == 7
    assert value("dragoman_tokens_total", {**model, "side": "target"}) == 9
    assert value("dragoman_queue_seconds_sum", model) == 0.5
    assert value("dragoman_encode_seconds_sum", model) == 0.25
    assert value("dragoman_decode_seconds_sum", model) == 2.0
    assert value("dragoman_sentence_seconds_sum", model) == 2.75


def test_a_sentence_that_never_ran_counts_no_tokens_and_no_engine_time(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.on_sequence(_sequence(outcome=Outcome.CANCELLED, admitted=False, target_tokens=0))
    model = {"model": "en-pt"}
    assert (
        registry.get_sample_value("dragoman_sentences_total", {**model, "outcome": "cancelled"})
        == 1
    )
    assert registry.get_sample_value("dragoman_tokens_total", {**model, "side": "source"}) == 0
    assert registry.get_sample_value("dragoman_decode_seconds_count", model) == 0
    assert registry.get_sample_value("dragoman_queue_seconds_count", model) == 1


def test_work_on_texts_is_timed_by_stage(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.on_text(
        TextStats(
            model="en-pt",
            request_id="r#1",
            stage=TextStage.DETOKENIZE,
            began=1.0,
            seconds=0.25,
            num_texts=1,
            num_segments=3,
        )
    )
    labels = {"model": "en-pt", "stage": "detokenize"}
    assert registry.get_sample_value("dragoman_text_seconds_sum", labels) == 0.25
    labels = {"model": "en-pt", "stage": "prepare"}
    assert registry.get_sample_value("dragoman_text_seconds_count", labels) == 0


def test_a_model_tells_the_limits_that_its_gauges_are_measured_against(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    values = [
        registry.get_sample_value(name, {"model": "en-pt"})
        for name in ("dragoman_queue_limit", "dragoman_row_limit", "dragoman_kv_limit_bytes")
    ]
    assert values == [100, 256, 1000]


def test_every_code_of_a_method_stands_at_zero_so_that_a_rate_sees_the_first_error(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    labels = {"grpc_type": "unary", "grpc_service": "service", "grpc_method": "Method"}
    for code in STATUS_NAMES:
        value = registry.get_sample_value(
            "grpc_server_handled_total", {**labels, "grpc_code": code}
        )
        assert value == 0
    observer.on_rpc_started(RpcStarted(method=METHOD))
    observer.on_rpc_ended(RpcEnded(method=METHOD, code="INTERNAL", seconds=0.1))
    internal = {**labels, "grpc_code": "INTERNAL"}
    assert registry.get_sample_value("grpc_server_started_total", labels) == 1
    assert registry.get_sample_value("grpc_server_handled_total", internal) == 1


def test_a_step_counts_rows_and_padding(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.on_step(
        StepStats(
            model="en-pt",
            step_seconds=0.016,
            encode_seconds=0.004,
            decode_seconds=0.012,
            num_sequences=2,
            num_rows=8,
            encoder_padded_tokens=40,
            decoder_padded_tokens=160,
        )
    )
    model = {"model": "en-pt"}
    assert registry.get_sample_value("dragoman_step_seconds_sum", model) == 0.016
    assert registry.get_sample_value("dragoman_step_rows_sum", model) == 8
    labels = {**model, "graph": "decoder"}
    assert registry.get_sample_value("dragoman_padded_tokens_total", labels) == 160
    labels = {**model, "graph": "encoder"}
    assert registry.get_sample_value("dragoman_padded_tokens_total", labels) == 40


def test_gauges_follow_what_a_model_holds(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    gauges = Gauges(
        model="en-pt",
        queue_depth=1,
        running_sequences=2,
        running_rows=8,
        kv_cache_bytes=100,
        kv_reserved_bytes=200,
    )
    observer.on_gauges(gauges)
    values = {
        name: registry.get_sample_value(f"dragoman_{name}", {"model": "en-pt"})
        for name in (
            "queue_depth",
            "running_sequences",
            "running_rows",
            "kv_cache_bytes",
            "kv_reserved_bytes",
        )
    }
    assert values == {
        "queue_depth": 1,
        "running_sequences": 2,
        "running_rows": 8,
        "kv_cache_bytes": 100,
        "kv_reserved_bytes": 200,
    }


def test_values_from_outside_make_no_new_series(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.on_rejected("other")
    observer.on_sequence(_sequence(model="unknown"))

    def count() -> int:
        return sum(len(family.samples) for family in registry.collect())

    before = count()
    for number in range(1000):
        observer.on_rejected(f"reason {number}")
        observer.on_sequence(_sequence(model=f"model {number}"))
        observer.on_guard(f"model {number}", f"guard {number}")
    assert count() == before


def test_scrapes_are_answered_on_a_port_of_their_own(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    server = MetricsServer(registry, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
        assert "dragoman_queue_depth" in text
        assert "process_resident_memory_bytes" in text
        assert "_created" not in text
        with pytest.raises(
            ConfigError, match=r"Cannot listen on 127.0.0.1:\d+ for metrics .*in use"
        ):
            MetricsServer(registry, "127.0.0.1", server.port)
    finally:
        server.close()
