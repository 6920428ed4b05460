"""Health (`grpc.health.v1`) and reflection, as probes, load balancers and generic clients expect them.

"" is SERVING as soon as the server listens: it lives. The full name of the service is SERVING once the models are
loaded and warm. Both are NOT_SERVING from SIGTERM on.
"""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from service.handlers import WatchedHandlers
from service.wire import SERVICE_NAME

__all__ = ["Health", "add_reflection"]

_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class Health:
    """Tells probes how the server is."""

    def __init__(self) -> None:
        """Begin as living, not yet serving."""
        self._servicer = health.aio.HealthServicer()

    async def add_to(self, handlers: WatchedHandlers) -> None:
        """Become a service of a server that does not listen yet."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, handlers)
        await self._servicer.set(SERVICE_NAME, health_pb2.HealthCheckResponse.NOT_SERVING)

    async def start_serving(self) -> None:
        """Models are loaded and warm."""
        await self._servicer.set(SERVICE_NAME, health_pb2.HealthCheckResponse.SERVING)

    async def stop_serving(self) -> None:
        """NOT_SERVING for good, all names: shutting down, or the engine died."""
        await self._servicer.enter_graceful_shutdown()


async def add_reflection(handlers: WatchedHandlers) -> None:
    """Add reflection v1alpha, and v1, which has the same messages under another name."""
    names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME, _REFLECTION_V1)
    method: Any = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (reflection.SERVICE_NAME, _REFLECTION_V1):
        handlers.add_registered_method_handlers(name, {"ServerReflectionInfo": method})
