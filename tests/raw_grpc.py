"""A gRPC call written byte by byte, with headers that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from benchmarks.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
)

__all__ = ["call_raw"]

_LONG = 127


def call_raw(
    address: str, path: str, message: bytes, headers: Mapping[str, bytes], seconds: float = 10
) -> bytes:
    """Make one call; the bytes of its answer's messages, empty where it has none.

    Raises:
        TimeoutError: It had no end.
    """
    host, _, port = address.rpartition(":")
    fields = {
        ":method": b"POST",
        ":scheme": b"http",
        ":path": path.encode(),
        ":authority": b"test",
        "content-type": b"application/grpc",
        "te": b"trailers",
        **headers,
    }
    block = b"".join(b"\0" + _text(name.encode()) + _text(value) for name, value in fields.items())
    body = b"\0" + len(message).to_bytes(4, "big") + message
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        connection.sendall(frame(HEADERS, END_HEADERS, 1, block))
        connection.sendall(frame(DATA, END_STREAM, 1, body))
        return _read(connection)


def _read(connection: socket.socket) -> bytes:
    answer = b""
    with connection.makefile("rb") as received:
        while head := received.read(9):
            payload = received.read(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == DATA:
                answer += payload
            if stream == 1 and (kind == RST_STREAM or flags & END_STREAM):
                break
    return answer


def _text(value: bytes) -> bytes:
    """Write a text as HPACK has it (RFC 7541, section 5), without Huffman's code."""
    length = len(value)
    if length < _LONG:
        return bytes((length,)) + value
    length -= _LONG
    digits = bytearray((_LONG,))
    while length > _LONG:
        digits.append(length % 128 + 128)
        length //= 128
    return bytes((*digits, length)) + value
