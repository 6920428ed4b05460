"""What every call has in common: errors, request ids, and what is told of it.

`ERROR_TABLE` is the one place that turns errors into gRPC codes, HTTP statuses and metric labels. A client never sees
UNKNOWN and never a traceback; a fault of ours is INTERNAL and names the request id, under which the log has the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
import math
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from service.calls import (
    Call,
    RpcEnded,
    RpcMethod,
    RpcObserver,
    RpcStarted,
    call_var,
    request_id_var,
)
from service.errors import (
    CancelledRequestError,
    DeadlineError,
    DragomanError,
    DrainingError,
    EngineDeadError,
    EngineStepError,
    InvalidRequestError,
    NotFoundError,
    NotImplementedInVersionError,
    OverloadedError,
)

__all__ = [
    "ERROR_TABLE",
    "CallInterceptor",
    "ErrorEntry",
    "as_told",
    "describe_error",
    "entry_of",
    "method_of",
    "status_of",
    "value_or_error",
]

Value = TypeVar("Value")

logger = logging.getLogger(__name__)

_call_numbers = itertools.count(1)
_REQUEST_ID = "x-request-id"
_MAX_REQUEST_ID_CHARACTERS = 128
_STATUS_TRAILER = "grpc-status-details-bin"
_RETRY_AFTER = "retry-after"
_MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """What an error is on the wire."""

    grpc_code: grpc.StatusCode
    http_status: int
    rejection: str | None
    """Label of `dragoman_rejected_total`; None for what is no refusal."""


ERROR_TABLE: dict[type[BaseException], ErrorEntry] = {
    InvalidRequestError: ErrorEntry(grpc.StatusCode.INVALID_ARGUMENT, 400, "invalid"),
    NotFoundError: ErrorEntry(grpc.StatusCode.NOT_FOUND, 404, "invalid"),
    OverloadedError: ErrorEntry(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "queue_full"),
    DeadlineError: ErrorEntry(grpc.StatusCode.DEADLINE_EXCEEDED, 504, "deadline"),
    CancelledRequestError: ErrorEntry(grpc.StatusCode.CANCELLED, 499, None),
    DrainingError: ErrorEntry(grpc.StatusCode.UNAVAILABLE, 503, "draining"),
    NotImplementedInVersionError: ErrorEntry(grpc.StatusCode.UNIMPLEMENTED, 501, "invalid"),
    EngineStepError: ErrorEntry(grpc.StatusCode.INTERNAL, 500, None),
    EngineDeadError: ErrorEntry(grpc.StatusCode.UNAVAILABLE, 503, None),
}
"""The nearest class of an error decides. Everything else is a fault of ours."""

_FAULT_OF_OURS = ErrorEntry(grpc.StatusCode.INTERNAL, 500, None)


def entry_of(error: BaseException) -> ErrorEntry:
    """Look an error up in the table."""
    for kind in type(error).__mro__:
        if kind in ERROR_TABLE:
            return ERROR_TABLE[kind]
    return _FAULT_OF_OURS


def describe_error(error: BaseException) -> str:
    """Give the message for a client. A fault of ours is logged, without its message: that may hold a user's text."""
    if isinstance(error, DragomanError):
        return str(error)
    where = "".join(traceback.format_tb(error.__traceback__))
    logger.error("Unexpected %s in a call\n%s", type(error).__qualname__, where)
    return f"Internal error; the server's log tells more about request {request_id_var.get()}."


def as_told(error: Exception) -> DragomanError:
    """Give an error as a client may see it."""
    if isinstance(error, DragomanError):
        return error
    return EngineStepError(describe_error(error))


async def value_or_error(work: Awaitable[Value]) -> Value | Exception:
    """Wait for something that must not fail its neighbours: what it raises is a value, too."""
    try:
        return await work
    except Exception as error:
        return error


def status_of(error: BaseException) -> Status:
    """Give an error as `google.rpc.Status`; one that may be retried says when."""
    status = Status(code=entry_of(error).grpc_code.value[0], message=_short(describe_error(error)))
    if isinstance(error, OverloadedError):
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after_seconds * 1e9))
        detail = AnyMessage()
        detail.Pack(RetryInfo(retry_delay=delay))
        status.details.append(detail)
    return status


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method of the server."""

    def __init__(
        self, observer: RpcObserver, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take who is told of calls."""
        self._observer = observer
        self._clock = clock
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        """Handlers with what became of them, by path: of registered methods only, so it does not grow."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Give the method that a call is for, wrapped."""
        handler = await continuation(handler_call_details)
        if handler is None:  # no such method: the library answers UNIMPLEMENTED
            return None
        path = handler_call_details.method
        known, wrapped = self._wrapped.get(path, (None, None))
        if known is not handler:
            wrapped = self._wrap(method_of(path, handler), handler)
            self._wrapped[path] = handler, wrapped
        return wrapped

    def _wrap(self, method: RpcMethod, handler: Any) -> Any:
        name = next(name for name in _CREATORS if getattr(handler, name))
        behavior, create = getattr(handler, name), _CREATORS[name]
        read = _each_message if handler.request_streaming else _only_message
        wrap = self._wrap_stream if handler.response_streaming else self._wrap_unary
        return create(
            wrap(method, read(behavior)),
            _tolerant(handler.request_deserializer),
            handler.response_serializer,
        )

    def _wrap_unary(self, method: RpcMethod, behavior: Any) -> Any:
        async def call(request: Any, context: Any) -> Any:
            async with _Call(method, context, self._observer, self._clock):
                return await behavior(request, context)

        return call

    def _wrap_stream(self, method: RpcMethod, behavior: Any) -> Any:
        # Writes to the context instead of yielding: a generator would not be closed when the client leaves.
        async def call(request: Any, context: Any) -> None:
            async with _Call(method, context, self._observer, self._clock):
                responses = behavior(request, context)
                if not hasattr(responses, "__aiter__"):  # writes to the context itself
                    await responses
                    return
                async with aclosing(responses):
                    async for response in responses:
                        await context.write(response)

        return call


class _Call:
    """One call from its begin to its end, whatever that is."""

    def __init__(
        self, method: RpcMethod, context: Any, observer: RpcObserver, clock: Callable[[], float]
    ) -> None:
        self._method = method
        self._context = context
        self._observer = observer
        self._clock = clock
        self._began = clock()
        self._key = ""

    async def __aenter__(self) -> None:
        metadata = self._context.invocation_metadata() or ()
        request_id = _request_id(metadata)
        self._key = f"{request_id}#{next(_call_numbers)}"
        request_id_var.set(request_id)
        call_var.set(Call(self._key))
        self._context.set_trailing_metadata(((_REQUEST_ID, request_id),))
        self._observer.on_rpc_started(
            RpcStarted(method=self._method, key=self._key, request_id=request_id, metadata=metadata)
        )

    async def __aexit__(self, kind: object, error: BaseException | None, where: object) -> None:
        code = self._code(error)
        seconds = self._clock() - self._began
        self._observer.on_rpc_ended(
            RpcEnded(method=self._method, key=self._key, code=code.name, seconds=seconds)
        )
        try:
            await self._tell_client(code, error)
        finally:
            self._log(
                code, seconds
            )  # after a fault has had its own line, which then is the only one

    async def _tell_client(self, code: grpc.StatusCode, error: BaseException | None) -> None:
        if error is None or isinstance(error, grpc.aio.AbortError):
            return
        if isinstance(error, asyncio.CancelledError):
            # Mostly the client left and nobody reads this; otherwise the call would never end for it.
            with contextlib.suppress(grpc.aio.UsageError, grpc.aio.InternalError):
                await self._context.abort(code, "The call was cancelled.")
            return
        await self._abort(error)

    def _log(self, code: grpc.StatusCode, seconds: float) -> None:
        """Write the one line of the call, if nothing was written yet. Probes and reflection are for debugging."""
        is_ours = not self._method.service.startswith("grpc.")
        level = logging.WARNING if code in _FAULTS else logging.INFO
        logger.log(
            level if is_ours else logging.DEBUG,
            "%s ended with %s after %.3f s",
            self._method.name,
            code.name,
            seconds,
            extra={
                "fields": {
                    "method": f"{self._method.service}/{self._method.name}",
                    "code": code.name,
                    "seconds": round(seconds, 6),
                }
            },
        )

    def _code(self, error: BaseException | None) -> grpc.StatusCode:
        if error is None or isinstance(error, grpc.aio.AbortError):
            code = self._context.code()  # None, a number or an enum, depending on who set it
            return code if isinstance(code, grpc.StatusCode) else _CODES[code or 0]
        if isinstance(error, asyncio.CancelledError):
            seconds_left = self._context.time_remaining()
            is_late = seconds_left is not None and seconds_left <= 0
            return grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.CANCELLED
        return entry_of(error).grpc_code

    async def _abort(self, error: BaseException) -> None:
        entry = entry_of(error)
        if entry.rejection is not None:
            self._observer.on_rejected(entry.rejection)
        trailers: list[tuple[str, str | bytes]] = [(_REQUEST_ID, request_id_var.get())]
        status = status_of(error)
        if isinstance(error, OverloadedError):
            trailers.append((_RETRY_AFTER, str(math.ceil(error.retry_after_seconds))))
            trailers.append((_STATUS_TRAILER, status.SerializeToString()))
        await self._context.abort(entry.grpc_code, status.message, tuple(trailers))


def _only_message(behavior: Any) -> Any:
    """Read the one message ourselves: the library never answers a call that is closed without it.

    Read from the context: an iterator that is left before its end costs a task to close it.
    """

    async def read(context: Any) -> Any:
        request = await context.read()
        if request is grpc.aio.EOF:
            raise InvalidRequestError("The call has no message.")
        return _decoded(request)

    async def call(_: AsyncIterator[Any], context: Any) -> Any:
        return await behavior(await read(context), context)

    async def stream(_: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for response in behavior(await read(context), context):
            yield response

    return stream if inspect.isasyncgenfunction(behavior) else call


def _each_message(behavior: Any) -> Any:
    """Refuse broken messages of a stream."""

    async def decoded(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            yield _decoded(request)

    def call(requests: AsyncIterator[Any], context: Any) -> Any:
        return behavior(decoded(requests), context)

    return call


class _Undecodable:
    """Stands for a message that is not what its type says, such as text that is not UTF-8."""


def method_of(path: str, handler: Any) -> RpcMethod:
    """Name a registered method from its path "/service/method"."""
    _, service, name = path.split("/", 2)
    kind = {
        (False, False): "unary",
        (True, False): "client_stream",
        (False, True): "server_stream",
        (True, True): "bidi_stream",
    }[handler.request_streaming, handler.response_streaming]
    return RpcMethod(kind, service, name)


def _tolerant(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Let a broken message come as far as the error table: the library would answer INTERNAL."""

    def deserialize(message: bytes) -> Any:
        try:
            return deserializer(message)
        except DecodeError:
            return _Undecodable()

    return deserialize


def _decoded(request: Any) -> Any:
    """Raise when a message is broken."""
    if isinstance(request, _Undecodable):
        raise InvalidRequestError("The message is broken, or holds a text that is not UTF-8.")
    return request


def _request_id(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    for key, value in metadata:
        if (
            key == _REQUEST_ID
            and isinstance(value, str)
            and 0 < len(value) <= _MAX_REQUEST_ID_CHARACTERS
            and value.isascii()  # others cannot be sent back
            and value.isprintable()
        ):
            return value
    return uuid.uuid4().hex


def _short(message: str) -> str:
    return (
        message
        if len(message) <= _MAX_MESSAGE_CHARACTERS
        else message[:_MAX_MESSAGE_CHARACTERS] + "…"
    )


_CODES = {code.value[0]: code for code in grpc.StatusCode}
_FAULTS = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
)
"""Ends that are no fault of the client."""
_CREATORS: dict[str, Callable[..., Any]] = {
    "unary_unary": grpc.stream_unary_rpc_method_handler,
    "unary_stream": grpc.stream_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}
