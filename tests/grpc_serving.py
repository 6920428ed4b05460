"""A real gRPC server on a free port, on fake cores, inside the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from protos.dragoman.v1 import translation_pb2 as pb
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


def with_server(
    test: Callable[[Serving], Awaitable[None]], core: FakeCore | None = None, **options: Any
) -> None:
    """Run a test against a server, for half a minute at most."""

    async def run() -> None:
        async with serving(core, **options) as server:
            await test(server)

    asyncio.run(asyncio.wait_for(run(), 30))


def make_request(*contents: str, **fields: Any) -> pb.TranslateTextRequest:
    options = pb.TranslationOptions(**fields.pop("options", {}))
    fields = {"source_language_code": "en", "target_language_code": "pt", **fields}
    return pb.TranslateTextRequest(contents=contents, options=options, **fields)


def make_item(item_id: str, content: str, **fields: Any) -> pb.StreamTranslateTextRequest:
    fields = {"source_language_code": "en", "target_language_code": "pt", **fields}
    return pb.StreamTranslateTextRequest(id=item_id, content=content, **fields)


async def fault_of(call: Awaitable[Any]) -> grpc.aio.AioRpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def assert_works(server: Serving) -> None:
    """The next request is answered."""
    answer = await server.stub.TranslateText(make_request("still here"))
    assert answer.translations[0].translated_text == "STILL HERE"


async def collect(call: Any) -> list[Any]:
    """All messages of a stream."""
    return [response async for response in call]
