"""What every call has in common: errors, request ids, and what is told of it.

`ERROR_TABLE` is the one place that turns errors into gRPC codes, HTTP statuses and metric labels. A client never sees
UNKNOWN and never a traceback; a fault of ours is INTERNAL and names the request id, under which the log has the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
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
from service.request_lines import RequestLines

__all__ = [
    "ERROR_TABLE",
    "CallWatcher",
    "ErrorEntry",
    "WatchedCall",
    "as_told",
    "describe_error",
    "entry_of",
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


@dataclass(frozen=True, slots=True)
class CallWatcher:
    """Who is told of calls."""

    observer: RpcObserver
    lines: RequestLines | None = None
    """Asked before the log is told; without, its own filter decides."""
    clock: Callable[[], float] = time.monotonic


class WatchedCall:
    """One call from its begin to its end, whatever that is. Made when the call begins, in its own task."""

    def __init__(self, method: RpcMethod, context: Any, watcher: CallWatcher) -> None:
        self._method = method
        self._context = context
        self._observer = watcher.observer
        self._lines = watcher.lines
        self._clock = watcher.clock
        self._began = self._clock()
        metadata = context.invocation_metadata() or ()
        request_id = _request_id(metadata)
        self._key = f"{request_id}#{next(_call_numbers)}"
        request_id_var.set(request_id)
        self._call = Call(self._key)
        call_var.set(self._call)
        context.set_trailing_metadata(((_REQUEST_ID, request_id),))
        self._observer.on_rpc_started(
            RpcStarted(method=method, key=self._key, request_id=request_id, metadata=metadata)
        )

    def end(self) -> None:
        """All went well; the answer is sent next."""
        code = self._context.code()  # None, a number or an enum, depending on who set it
        code = code if isinstance(code, grpc.StatusCode) else _CODES[code or 0]
        self._log(code, self._count(code))

    async def fail(self, error: BaseException) -> None:
        """The call ends with this error: tell the client.

        Raises:
            AbortError: It was told; the library wants this to be raised.
        """
        if isinstance(error, grpc.aio.AbortError):  # told already
            self.end()
            return
        code = self._code(error)
        seconds = self._count(code)
        try:
            await self._tell_client(code, error)
        finally:
            self._log(
                code, seconds
            )  # after a fault has had its own line, which then is the only one

    def _count(self, code: grpc.StatusCode) -> float:
        seconds = self._clock() - self._began
        self._observer.on_rpc_ended(
            RpcEnded(method=self._method, key=self._key, code=code.name, seconds=seconds)
        )
        return seconds

    async def _tell_client(self, code: grpc.StatusCode, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            # Mostly the client left and nobody reads this; otherwise the call would never end for it.
            with contextlib.suppress(grpc.aio.UsageError, grpc.aio.InternalError):
                await self._context.abort(code, "The call was cancelled.")
            return
        await self._abort(error)

    def _log(self, code: grpc.StatusCode, seconds: float) -> None:
        """Write the one line of the call, if nothing was written yet. Probes and reflection are for debugging."""
        level = logging.WARNING if code in _FAULTS else logging.INFO
        if self._method.service.startswith("grpc."):
            level = logging.DEBUG
        if self._call.is_logged or not logger.isEnabledFor(level):
            return
        if self._lines is not None and self._lines.leave_out(level):
            self._call.is_logged = True
            return
        logger.log(
            level,
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

    def _code(self, error: BaseException) -> grpc.StatusCode:
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
    return (
        f"{random.getrandbits(128):032x}"  # as unlikely to come again as a UUID, and no system call
    )


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
