"""Methods are wrapped when they are added, and found by their path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from service.calls import RpcMethod
from service.handlers import WatchedHandlers, method_of
from service.interceptors import CallWatcher
from service.metrics import PrometheusObserver


def _handlers() -> WatchedHandlers:
    return WatchedHandlers(CallWatcher(PrometheusObserver(CollectorRegistry())))


def _find(handlers: WatchedHandlers, path: str) -> Any:
    return handlers.service(SimpleNamespace(method=path, invocation_metadata=()))


def test_a_method_is_found_wrapped_by_its_path_and_an_unknown_one_is_not() -> None:
    handlers = _handlers()
    added = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    handlers.add_registered_method_handlers("package.Service", {"Method": added})
    found = _find(handlers, "/package.Service/Method")
    assert found is not added
    assert found is _find(handlers, "/package.Service/Method")
    assert _find(handlers, "/package.Service/Nothing") is None
    assert _find(handlers, "/package.Other/Method") is None


@pytest.mark.parametrize(
    ("create", "kind"),
    [
        (grpc.unary_unary_rpc_method_handler, "unary"),
        (grpc.unary_stream_rpc_method_handler, "server_stream"),
        (grpc.stream_unary_rpc_method_handler, "client_stream"),
        (grpc.stream_stream_rpc_method_handler, "bidi_stream"),
    ],
)
def test_a_method_keeps_its_kind_of_answer_and_its_name_in_metrics(create: Any, kind: str) -> None:
    handlers = _handlers()
    added = create(lambda request, context: request, None, str.encode)
    handlers.add_registered_method_handlers("package.Service", {"Method": added})
    found = _find(handlers, "/package.Service/Method")
    assert found.response_streaming == added.response_streaming
    assert found.response_serializer is str.encode
    assert method_of("/package.Service/Method", added) == RpcMethod(
        kind, "package.Service", "Method"
    )
