"""Unary gRPC calls over a plain socket, for load that must not cost what it measures.

A client of `grpc.aio` takes half a millisecond of processor time a call, which on the same two cores is taken from the
server. What it does beyond the wire (metadata, deadlines, retries, balancing) no measurement needs: the frames of
HTTP/2 (RFC 9113) are written here, and of those that come back only what tells a message from an error is read.
"""

from __future__ import annotations

import asyncio
import struct

import grpc

__all__ = [
    "DATA",
    "END_HEADERS",
    "END_STREAM",
    "HEADERS",
    "PREFACE",
    "RST_STREAM",
    "SETTINGS",
    "CallFailedError",
    "Connection",
    "connect",
    "frame",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, _ACK = 0x1, 0x4, 0x1
_FRAME_HEADER = 9
_MESSAGE_HEADER = 5
_MAX_FRAME = 16_384
_MAX_MESSAGE = 60_000
"""Bytes that may be sent before the server says that it has read some, less what frames cost."""
_WINDOW = 2**30
"""Bytes that the server may send before we say that we have read some."""
_INITIAL_WINDOW_SIZE = 4
_STATIC_POST, _STATIC_HTTP = b"\x83", b"\x86"
_STATIC_AUTHORITY, _STATIC_PATH = 1, 4
_SHORT_LITERAL = 127


class CallFailedError(grpc.RpcError):
    """A call ended without a message, or its connection did."""


class Connection(asyncio.Protocol):
    """One client: calls on one connection, as many at once as are asked for.

    Args:
        authority: Host and port.
        path: Of the method, "/package.Service/Method".
    """

    def __init__(self, authority: str, path: str) -> None:
        self._headers = b"".join(
            (
                _STATIC_POST,
                _STATIC_HTTP,
                _literal(path, index=_STATIC_PATH),
                _literal(authority, index=_STATIC_AUTHORITY),
                _literal("application/grpc", name="content-type"),
                _literal("trailers", name="te"),
            )
        )
        self._transport: asyncio.Transport | None = None
        self._unread = b""
        self._next_stream = 1
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._bodies: dict[int, bytes] = {}
        self._num_read = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW)
        transport.write(
            PREFACE + frame(SETTINGS, 0, 0, settings) + frame(_WINDOW_UPDATE, 0, 0, _u32(_WINDOW))
        )

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the calls that run."""
        self._transport = None
        for stream in list(self._answers):
            self._fail(stream, "The connection was lost.")

    async def call(self, message: bytes) -> bytes:
        """Send a message and wait for the answer.

        Raises:
            CallFailedError: The call ended without one.
            ValueError: The message is too long for this client.
        """
        if self._transport is None:
            raise CallFailedError("There is no connection.")
        if len(message) > _MAX_MESSAGE:
            raise ValueError(f"A message must have at most {_MAX_MESSAGE} bytes.")
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        body = struct.pack(">BI", 0, len(message)) + message
        frames = [frame(HEADERS, END_HEADERS, stream, self._headers)]
        for start in range(0, len(body), _MAX_FRAME):
            is_last = start + _MAX_FRAME >= len(body)
            flags = END_STREAM if is_last else 0
            frames.append(frame(DATA, flags, stream, body[start : start + _MAX_FRAME]))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[stream] = answer
        self._transport.write(b"".join(frames))
        return await answer

    def close(self) -> None:
        """End. Calls that run fail."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Read the frames that are whole."""
        data = self._unread + data
        start = 0
        while start + _FRAME_HEADER <= len(data):
            end = start + _FRAME_HEADER + int.from_bytes(data[start : start + 3])
            if end > len(data):
                break
            kind, flags = data[start + 3], data[start + 4]
            stream = int.from_bytes(data[start + 5 : start + 9])
            self._read(kind, flags, stream, data[start + _FRAME_HEADER : end])
            start = end
        self._unread = data[start:]

    def _read(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._bodies[stream] = self._bodies.get(stream, b"") + payload
            self._give_room(len(payload))
        elif kind == SETTINGS and not flags & _ACK:
            self._write(frame(SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._write(frame(_PING, _ACK, 0, payload))
        elif kind == RST_STREAM:
            self._fail(stream, "The server ended the call.")
        elif kind == _GOAWAY:
            self.close()
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self._end(stream)

    def _end(self, stream: int) -> None:
        """A call is over: with a message, or, when it failed, with trailers alone."""
        body = self._bodies.pop(stream, b"")
        if len(body) < _MESSAGE_HEADER:
            self._fail(stream, "The call ended without a message.")
            return
        answer = self._answers.pop(stream, None)
        if answer is not None and not answer.done():
            answer.set_result(body[_MESSAGE_HEADER:])

    def _fail(self, stream: int, reason: str) -> None:
        self._bodies.pop(stream, None)
        answer = self._answers.pop(stream, None)
        if answer is not None and not answer.done():
            answer.set_exception(CallFailedError(reason))

    def _give_room(self, count: int) -> None:
        """Let the server send as much again, now and then."""
        self._num_read += count
        if self._num_read >= _WINDOW // 2:
            self._write(frame(_WINDOW_UPDATE, 0, 0, _u32(self._num_read)))
            self._num_read = 0

    def _write(self, frames: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frames)


async def connect(address: str, path: str) -> Connection:
    """Connect to a server without TLS, for calls of one method.

    Raises:
        OSError: Nobody listens there.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(address, path), host.strip("[]"), int(port)
    )
    return connection


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Write a frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _literal(value: str, *, index: int = 0, name: str = "") -> bytes:
    """One header field as HPACK (RFC 7541) has it, neither indexed nor compressed."""
    parts = [value] if index else [name, value]
    assert all(len(each) < _SHORT_LITERAL for each in parts), "longer ones are written otherwise"
    return bytes((index,)) + b"".join(bytes((len(each),)) + each.encode("ascii") for each in parts)


def _u32(value: int) -> bytes:
    return value.to_bytes(4)
