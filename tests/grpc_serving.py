"""A real gRPC server on a free port, on fake cores, inside the test's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from prometheus_client import CollectorRegistry

from protos.dragoman.v1 import translation_pb2_grpc
from service.config import LimitsConfig, ServerConfig
from service.grpc_server import METHODS, GrpcServer, TranslationServicer
from service.health import Health, add_reflection
from service.metrics import PrometheusObserver
from service.translator import ServedModel, Translator
from service.validation import Validator
from tests.fake_core import FakeCore, make_served_model


@dataclass(frozen=True, slots=True)
class Serving:
    """A server, and a client of it."""

    channel: grpc.aio.Channel
    stub: Any
    servicer: TranslationServicer
    server: GrpcServer
    health: Health
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, 0 when it has none yet."""
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    core: FakeCore | None = None,
    *,
    models: Sequence[ServedModel] | None = None,
    config: ServerConfig | None = None,
    limits: LimitsConfig | None = None,
    is_ready: bool = True,
) -> AsyncIterator[Serving]:
    """Serve models, by default one of English to Portuguese on `core`."""
    models = models or [make_served_model(core)]
    config = config or ServerConfig(listen="127.0.0.1:0")
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    observer.start_methods(METHODS)
    servicer = TranslationServicer(observer, max_stream_items=config.max_stream_items)
    health = Health()
    server = GrpcServer(config, servicer, observer, add_ons=(health.add_to, add_reflection))
    translator = Translator(models)
    await server.start()
    if is_ready:
        validator = Validator([model.manifest for model in models], limits or LimitsConfig())
        servicer.start(validator, translator)
        await health.start_serving()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            yield Serving(channel, stub, servicer, server, health, registry)
    finally:
        await server.stop(0)
        translator.close()
