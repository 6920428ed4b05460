"""What surrounds the methods on a real server: health, reflection, metrics, and calls before there are models."""

from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from service.wire import SERVICE_NAME
from tests.grpc_serving import (
    Serving,
    assert_works,
    collect,
    fault_of,
    make_item,
    make_request,
    with_server,
)

_METHOD = {"grpc_type": "unary", "grpc_service": SERVICE_NAME, "grpc_method": "TranslateText"}


def test_before_the_models_are_loaded_calls_are_unavailable_and_health_says_so() -> None:
    async def test(server: Serving) -> None:
        health = health_pb2_grpc.HealthStub(server.channel)
        status = health_pb2.HealthCheckResponse
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == status.SERVING
        request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
        assert (await health.Check(request)).status == status.NOT_SERVING
        error = await fault_of(server.stub.TranslateText(make_request("a")))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "loading" in (error.details() or "")

    with_server(test, is_ready=False)


def test_health_follows_the_life_of_the_server() -> None:
    async def test(server: Serving) -> None:
        health = health_pb2_grpc.HealthStub(server.channel)
        status = health_pb2.HealthCheckResponse
        request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
        watch = health.Watch(request)
        assert (await watch.read()).status == status.SERVING
        await server.health.stop_serving()
        assert (await watch.read()).status == status.NOT_SERVING
        for service in ("", SERVICE_NAME):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == status.NOT_SERVING
        error = await fault_of(health.Check(health_pb2.HealthCheckRequest(service="other")))
        assert error.code() is grpc.StatusCode.NOT_FOUND

    with_server(test)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_generic_clients_find_the_interface_by_reflection(version: str) -> None:
    async def test(server: Serving) -> None:
        method = server.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE_NAME),
            reflection_pb2.ServerReflectionRequest(file_by_filename="google/rpc/status.proto"),
        ]
        services, file, imported = await collect(method(iter(requests)))
        names = {each.name for each in services.list_services_response.service}
        assert {
            SERVICE_NAME,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
        } <= names
        assert b"TranslateText" in b"".join(file.file_descriptor_response.file_descriptor_proto)
        assert imported.file_descriptor_response.file_descriptor_proto

    with_server(test)


def test_unknown_methods_are_unimplemented_and_make_no_labels() -> None:
    async def test(server: Serving) -> None:
        def series() -> int:
            return sum(len(family.samples) for family in server.registry.collect())

        await assert_works(server)
        before = series()
        for number in range(50):
            error = await fault_of(
                server.channel.unary_unary(f"/{SERVICE_NAME}/Nothing{number}")(b"")
            )
            assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert series() == before

    with_server(test)


def test_calls_are_counted_by_method_and_code() -> None:
    async def test(server: Serving) -> None:
        for _ in range(3):
            await assert_works(server)
        await collect(server.stub.StreamTranslateText(iter([make_item("a", "b")])))
        stream = {**_METHOD, "grpc_type": "bidi_stream", "grpc_method": "StreamTranslateText"}
        assert server.metric("grpc_server_started_total", **_METHOD) == 3
        assert server.metric("grpc_server_handled_total", **_METHOD, grpc_code="OK") == 3
        assert server.metric("grpc_server_handling_seconds_count", **_METHOD) == 3
        assert server.metric("grpc_server_handled_total", **stream, grpc_code="OK") == 1

    with_server(test)
