"""A client that costs little: its calls are encoded before time is taken, and its answers decoded afterwards.

It runs on the same cores as the server that it measures.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from benchmarks.http2 import Connection, connect
from export.bundle import Manifest
from protos.dragoman.v1 import translation_pb2 as pb
from service.wire import SERVICE_NAME

__all__ = ["Caller", "decode_call", "encode_call", "open_caller"]

_METHOD = f"/{SERVICE_NAME}/TranslateText"


def encode_call(texts: Sequence[str], manifest: Manifest) -> bytes:
    """Write the message that asks for translations of these texts, with the options that a bundle has by default."""
    request = pb.TranslateTextRequest(
        contents=texts,
        source_language_code=manifest.source_language,
        target_language_code=manifest.target_language,
    )
    return request.SerializeToString()


def decode_call(answer: bytes) -> list[str]:
    """Read the translations.

    Raises:
        RuntimeError: A text was not translated.
    """
    translations = pb.TranslateTextResponse.FromString(answer).translations
    for each in translations:
        if each.HasField("status"):
            raise RuntimeError(each.status.message)
    return [each.translated_text for each in translations]


class Caller:
    """Connections to one server."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        """Take the connections."""
        self._connections = connections

    async def call(self, number: int, message: bytes) -> bytes:
        """Send a message over the connection whose turn it is.

        Raises:
            CallFailedError: The call failed.
        """
        return await self._connections[number % len(self._connections)].call(message)


@contextlib.asynccontextmanager
async def open_caller(address: str, num_connections: int) -> AsyncIterator[Caller]:
    """Connect: as many clients as there are connections."""
    connections = [await connect(address, _METHOD) for _ in range(num_connections)]
    try:
        yield Caller(connections)
    finally:
        for connection in connections:
            connection.close()
