"""From a client's `traceparent` through the real server to an OTLP collector; and nothing of it when it is off."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent import futures
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from service.config import TracingConfig
from service.tracing import _CLOSE_SECONDS
from tests.fake_app import Running, make_config, make_request, running

ROOT = Path(__file__).resolve().parents[2]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@dataclass(slots=True)
class _Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that remembers."""

    requests: list[Any] = field(default_factory=list)

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.requests.append(request)
        return otlp.ExportTraceServiceResponse()

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@asynccontextmanager
async def _traced(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Running, _Collector]]:
    """An application that sends its spans to a collector of the test."""
    collector = _Collector()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tracing = TracingConfig(endpoint=f"http://127.0.0.1:{port}")
    try:
        async with running(monkeypatch, config=replace(make_config(), tracing=tracing)) as app:
            while app.application._translator is None:
                await asyncio.sleep(0.005)
            yield app, collector
    finally:
        server.stop(None).wait()


def test_a_call_arrives_at_the_collector_with_all_its_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with _traced(monkeypatch) as (app, collector):
            await app.stub.TranslateText(
                make_request("secret words. more of them."),
                metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"), ("x-request-id", "mine")),
            )
            assert await app.stop() == 0
            names = sorted(span.name for span in collector.spans)
            assert names == sorted(
                ["dragoman.v1.TranslationService/TranslateText", "prepare", "detokenize"]
                + 2 * ["sentence", "queue", "encode", "decode"]
            )
            assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
            (call,) = [span for span in collector.spans if span.parent_span_id.hex() == PARENT]
            assert call.name.endswith("TranslateText")
            shown = str(collector.requests)
            assert '"mine"' in shown
            assert "secret" not in shown.lower()
            for span in collector.spans:
                assert (
                    call.start_time_unix_nano
                    <= span.start_time_unix_nano
                    <= span.end_time_unix_nano
                    <= call.end_time_unix_nano
                )

    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_collector_that_is_gone_holds_up_neither_calls_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        tracing = TracingConfig(endpoint="http://127.0.0.1:1")
        async with running(monkeypatch, config=replace(make_config(), tracing=tracing)) as app:
            while app.application._translator is None:
                await asyncio.sleep(0.005)
            for _ in range(
                10
            ):  # 10 x (64 sentences of four spans, and three): several batches of the exporter
                answer = await app.stub.TranslateText(make_request("hello. " * 64), timeout=5)
            assert answer.translations[0].translated_text.startswith("HELLO. HELLO.")
            began = time.monotonic()
            assert await app.stop() == 0
            assert time.monotonic() - began < _CLOSE_SECONDS + 3

    asyncio.run(asyncio.wait_for(test(), 60))
    began = time.monotonic()
    while _exporting_threads():
        assert time.monotonic() - began < 5, "an export goes on"
        time.sleep(0.05)


def _exporting_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if "Otel" in name or name == "tracing"]


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_asking_for_tracing_without_the_extra_is_one_message() -> None:
    done = _run(
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"  # as if it were not installed
        "import service.app\n"
        "from service.config import Config, MetricsConfig, TracingConfig\n"
        "tracing = TracingConfig(endpoint='http://127.0.0.1:4317')\n"
        "config = Config(metrics=MetricsConfig(listen=''), tracing=tracing)\n"
        "sys.exit(service.app.serve(config))\n"
    )
    assert done.returncode == 2
    assert done.stderr == (
        "dragoman: `tracing.endpoint` is set, but OpenTelemetry is not installed: "
        "install Dragoman with its extra `tracing`.\n"
    )


def test_a_server_that_does_not_trace_loads_no_opentelemetry_and_asks_one_observer_only() -> None:
    done = _run(
        "import asyncio, json, sys\n"
        "from service.app import Application\n"
        "from service.config import Config\n"
        "async def build():\n"
        "    return type(Application(Config())._observer).__name__\n"
        "loaded = [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "print(json.dumps([asyncio.run(build()), loaded]))\n"
    )
    assert json.loads(done.stdout) == ["PrometheusObserver", []]
