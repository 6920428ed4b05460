"""A gRPC client of a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from commands.backend import Answer, Options, Pair
from commands.errors import EXIT_USAGE, CommandError
from protos.dragoman.v1 import translation_pb2, translation_pb2_grpc

__all__ = ["Client"]

_T = TypeVar("_T")

_USAGE_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
}
_MAX_ATTEMPTS = 60
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class _TooLargeError(CommandError):
    """A message is over the server's limit of bytes: sending it again is of no use."""


class Client:
    """Speaks to one server; an implementation of `Backend`."""

    def __init__(self, address: str, *, timeout_seconds: float | None = None) -> None:
        if not address.strip():
            raise CommandError("--address must be HOST:PORT, but is empty.", exit_code=EXIT_USAGE)
        self._address = address
        self._timeout = timeout_seconds
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            ],
        )
        self._stub: Any = translation_pb2_grpc.TranslationServiceStub(self._channel)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def list_pairs(self) -> list[Pair]:
        """Ask the server for its models."""
        request = translation_pb2.ListModelsRequest()
        response = await self._call(lambda: self._stub.ListModels(request, timeout=self._timeout))
        return [
            Pair(
                model.name,
                model.source_language_code,
                model.target_language_code,
                model.version,
                model.precision,
            )
            for model in response.models
        ]

    async def translate(self, texts: Sequence[str], options: Options) -> list[Answer]:
        """Translate in one call; wait and try again while the server's queue is full."""
        request = translation_pb2.TranslateTextRequest(
            contents=texts,
            source_language_code=options.source_language,
            target_language_code=options.target_language,
            model=options.model,
            options=_options_to_proto(options),
        )
        try:
            response = await self._call(
                lambda: self._stub.TranslateText(request, timeout=self._timeout)
            )
        except _TooLargeError as error:
            if len(texts) > 1:
                raise
            return [Answer(text="", error=str(error))]  # a fault of this text, not of the next
        return [_answer_from_proto(translation) for translation in response.translations]

    async def check_health(self, service: str) -> str:
        """Name the serving status of a service, "SERVING" for one that is up."""
        stub: Any = health_pb2_grpc.HealthStub(self._channel)
        request = health_pb2.HealthCheckRequest(service=service)
        response = await self._call(lambda: stub.Check(request, timeout=self._timeout))
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))

    async def _call(self, start: Callable[[], Awaitable[_T]]) -> _T:
        for attempt in range(_MAX_ATTEMPTS):
            try:
                return await start()
            except grpc.aio.AioRpcError as error:
                wait = _retry_after(error)
                if wait is None or attempt == _MAX_ATTEMPTS - 1:
                    raise self._explain(error) from error
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    def _explain(self, error: grpc.aio.AioRpcError) -> CommandError:
        code, details = error.code(), error.details() or "no details"
        if code is grpc.StatusCode.UNAVAILABLE and "onnect" in details:
            return CommandError(f"no server answers at {self._address}.")
        message = f"the server at {self._address} says {code.name}: {details}"
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _retry_after(error) is None:
            return _TooLargeError(message)
        return CommandError(message, exit_code=EXIT_USAGE if code in _USAGE_CODES else 1)


def _retry_after(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds to wait before trying again; None where trying again is of no use."""
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    for key, value in error.trailing_metadata() or ():
        if key == "retry-after":
            try:
                return min(max(float(value), 0.05), 10.0)
            except ValueError:
                return 1.0
    return None  # a message over the size limit stays over it


def _options_to_proto(options: Options) -> translation_pb2.TranslationOptions:
    try:
        return translation_pb2.TranslationOptions(
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            num_alternatives=options.num_alternatives,
            return_scores=options.return_scores,
        )
    except ValueError as error:  # no 32 bits hold it
        raise CommandError(f"an option is wrong: {error}.", exit_code=EXIT_USAGE) from error


def _answer_from_proto(translation: translation_pb2.Translation) -> Answer:
    return Answer(
        text=translation.translated_text,
        alternatives=tuple(each.translated_text for each in translation.alternatives),
        score=translation.score if translation.HasField("score") else None,
        truncated=translation.truncated,
        error=translation.status.message if translation.status.code else "",
    )
