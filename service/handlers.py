"""The methods of a server, each wrapped once: its calls are watched, and their messages read by us.

The library would run an interceptor in coroutines of its own for every call, and for every call it would wake a task
that waits for each method that is registered by name. A generic handler costs neither: it is asked for the method.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from service.calls import RpcMethod
from service.errors import InvalidRequestError
from service.interceptors import CallWatcher, WatchedCall

__all__ = ["WatchedHandlers", "method_of"]


class WatchedHandlers(grpc.GenericRpcHandler):
    """All methods of a server. Services are added to it as to the server itself."""

    def __init__(self, watcher: CallWatcher) -> None:
        """Take who is told of calls."""
        self._watcher = watcher
        self._by_path: dict[str, Any] = {}

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Any]
    ) -> None:
        """Add the methods of a service, by name."""
        for name, handler in method_handlers.items():
            path = f"/{service_name}/{name}"
            self._by_path[path] = self._wrap(method_of(path, handler), handler)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        """Take nothing: generated code adds each method both ways."""

    def service(self, handler_call_details: Any) -> Any:
        """Give the method that a call is for; without one the library answers UNIMPLEMENTED."""
        return self._by_path.get(handler_call_details.method)

    def _wrap(self, method: RpcMethod, handler: Any) -> Any:
        name = next(name for name in _CREATORS if getattr(handler, name))
        wrap = self._wrap_stream if handler.response_streaming else self._wrap_unary
        return _CREATORS[name](
            wrap(method, getattr(handler, name), handler.request_streaming),
            _tolerant(handler.request_deserializer),
            handler.response_serializer,
        )

    def _wrap_unary(self, method: RpcMethod, behavior: Any, has_many_requests: bool) -> Any:
        async def call(requests: AsyncIterator[Any], context: Any) -> Any:
            watched = WatchedCall(method, context, self._watcher)
            try:
                request = await _read(requests, context, has_many_requests)
                response = await behavior(request, context)
            except BaseException as error:
                await watched.fail(error)
                raise
            watched.end()
            return response

        return call

    def _wrap_stream(self, method: RpcMethod, behavior: Any, has_many_requests: bool) -> Any:
        # Writes to the context instead of yielding: a generator would not be closed when the client leaves.
        async def call(requests: AsyncIterator[Any], context: Any) -> None:
            watched = WatchedCall(method, context, self._watcher)
            try:
                request = await _read(requests, context, has_many_requests)
                responses = behavior(request, context)
                if hasattr(responses, "__aiter__"):
                    async with aclosing(responses):
                        async for response in responses:
                            await context.write(response)
                else:  # writes to the context itself
                    await responses
            except BaseException as error:
                await watched.fail(error)
                raise
            watched.end()

        return call


def method_of(path: str, handler: Any) -> RpcMethod:
    """Name a method from its path "/service/method"."""
    _, service, name = path.split("/", 2)
    kind = {
        (False, False): "unary",
        (True, False): "client_stream",
        (False, True): "server_stream",
        (True, True): "bidi_stream",
    }[handler.request_streaming, handler.response_streaming]
    return RpcMethod(kind, service, name)


_CREATORS: dict[str, Callable[..., Any]] = {
    "unary_unary": grpc.stream_unary_rpc_method_handler,
    "unary_stream": grpc.stream_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}
"""We read the only message ourselves: the library never answers a call that is closed without it."""


class _Undecodable:
    """Stands for a message that is not what its type says, such as text that is not UTF-8."""


def _tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Let a broken message come as far as the error table: the library would answer INTERNAL."""

    def deserialize(message: bytes) -> Any:
        try:
            return deserializer(message)
        except DecodeError:
            return _Undecodable()

    return deserialize


async def _read(requests: AsyncIterator[Any], context: Any, has_many_requests: bool) -> Any:
    """Give the stream of a call, or its only message.

    That is read from the context: an iterator that is left before its end costs a task to close it.

    Raises:
        InvalidRequestError: There is no message, or a broken one.
    """
    if has_many_requests:
        return _each_message(requests)
    request = await context.read()
    if request is grpc.aio.EOF:
        raise InvalidRequestError("The call has no message.")
    return _decoded(request)


async def _each_message(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Refuse broken messages of a stream."""
    async for request in requests:
        yield _decoded(request)


def _decoded(request: Any) -> Any:
    """Raise when a message is broken."""
    if isinstance(request, _Undecodable):
        raise InvalidRequestError("The message is broken, or holds a text that is not UTF-8.")
    return request
