"""A gRPC call written byte by byte, with headers that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

__all__ = ["Frame", "call_raw", "frames_of_call"]

_LONG = 127


@dataclass(frozen=True, slots=True)
class Frame:
    """What a server sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def call_raw(
    address: str, path: str, message: bytes, headers: Mapping[str, bytes], seconds: float = 10
) -> bytes:
    """Make one call; the bytes of its answer's messages, empty where it has none.

    Raises:
        TimeoutError: It had no end.
    """
    frames = frames_of_call(address, path, message, headers, seconds)
    return b"".join(each.payload for each in frames if each.kind == DATA)


def frames_of_call(
    address: str, path: str, message: bytes, headers: Mapping[str, bytes], seconds: float = 10
) -> list[Frame]:
    """Make one call; everything that the server sent until its end.

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
        return list(_read(connection))


def _read(connection: socket.socket) -> Iterator[Frame]:
    with connection.makefile("rb") as received:
        while head := received.read(9):
            payload = received.read(int.from_bytes(head[:3], "big"))
            each = Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
            yield each
            if each.stream == 1 and (each.kind == RST_STREAM or each.flags & END_STREAM):
                break


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
