"""A gRPC call written byte by byte, with headers that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Mapping

__all__ = ["call_raw"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4
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
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        connection.sendall(_frame(_HEADERS, _END_HEADERS, 1, block))
        connection.sendall(_frame(_DATA, _END_STREAM, 1, body))
        return _read(connection)


def _read(connection: socket.socket) -> bytes:
    answer = b""
    with connection.makefile("rb") as received:
        while head := received.read(9):
            payload = received.read(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == _DATA:
                answer += payload
            if stream == 1 and (kind == _RST_STREAM or flags & _END_STREAM):
                break
    return answer


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


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
