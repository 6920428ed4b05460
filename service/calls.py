"""Calls at the edge: what is told of them, and what all tasks that work for one of them share."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import grpc

__all__ = [
    "STATUS_NAMES",
    "Call",
    "RpcEnded",
    "RpcMethod",
    "RpcObserver",
    "RpcStarted",
    "call_var",
    "request_id_var",
]

request_id_var: ContextVar[str] = ContextVar("request_id", default="")
"""The request id of the call that runs: the client's `x-request-id`, or one of ours."""


@dataclass(slots=True)
class Call:
    """What all tasks that work for one call share."""

    key: str
    """Names the call in this process: request ids come from clients and may repeat."""
    is_logged: bool = False
    """Whether the log has its line."""


call_var: ContextVar[Call] = ContextVar("call")
"""The call that runs. Not set outside of calls."""

STATUS_NAMES = tuple(code.name for code in grpc.StatusCode)
"""Every gRPC status code that a call can end with."""


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """A registered method, as metrics label it."""

    kind: str
    """"unary", "client_stream", "server_stream" or "bidi_stream"."""
    service: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcStarted:
    """A call that began."""

    method: RpcMethod
    key: str = ""
    """See `Call`."""
    request_id: str = ""
    metadata: Sequence[tuple[str, str | bytes]] = ()
    """As the client sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcEnded:
    """A call that ended."""

    method: RpcMethod
    key: str = ""
    """See `Call`."""
    code: str
    """Name of the gRPC status code, such as "OK"."""
    seconds: float


class RpcObserver(Protocol):
    """Receives what happened to calls."""

    def on_rpc_started(self, started: RpcStarted) -> None:
        """A call began."""

    def on_rpc_ended(self, ended: RpcEnded) -> None:
        """A call ended."""

    def on_rejected(self, reason: str) -> None:
        """A request, or one text of it, was refused."""
