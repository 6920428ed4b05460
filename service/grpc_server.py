"""Stages 1 and 10 of 10: the gRPC server. Only this, `wire.py` and `health.py` know proto."""

from __future__ import annotations

import asyncio
import functools
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from protos.dragoman.v1 import translation_pb2 as pb
from protos.dragoman.v1 import translation_pb2_grpc
from service.active_calls import ActiveCalls
from service.answer_stream import answer_as_finished, until
from service.calls import RpcMethod, RpcObserver, call_var
from service.config import ServerConfig, split_address
from service.courtesy import Courtesy
from service.errors import ConfigError, DragomanError, DrainingError, InvalidRequestError
from service.handlers import WatchedHandlers
from service.interceptors import CallWatcher, as_told, entry_of, value_or_error
from service.request import Translation, TranslationRequest
from service.request_lines import RequestLines
from service.translator import Translator
from service.validation import Validator
from service.wire import (
    SERVICE_NAME,
    model_to_proto,
    request_from_proto,
    stream_request_from_proto,
    write_translation,
)

__all__ = ["METHODS", "AddOn", "GrpcServer", "TranslationServicer"]

METHODS = (
    RpcMethod("unary", SERVICE_NAME, "TranslateText"),
    RpcMethod("unary", SERVICE_NAME, "ListModels"),
    RpcMethod("bidi_stream", SERVICE_NAME, "StreamTranslateText"),
)
AddOn = Callable[[WatchedHandlers], Awaitable[None]]
"""Adds methods of its own."""
_Parts = tuple[Validator, Translator]
_MAX_ITEM_ID_CHARACTERS = 128
_WINDOW_BYTES = 4 * 1024 * 1024
"""What a client may send before we have read it."""


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers the methods of `TranslationService`."""

    def __init__(
        self,
        observer: RpcObserver,
        *,
        max_stream_items: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without models: every call is UNAVAILABLE until `start`."""
        self._observer = observer
        self._max_stream_items = max_stream_items
        self._clock = clock
        self._parts: _Parts | None = None
        self._refusal: DragomanError = DrainingError("The server is loading its models.")
        self._stopping = asyncio.Event()
        self.active = ActiveCalls(on_change=Courtesy().note_calls, clock=clock)

    def start(self, validator: Validator, translator: Translator) -> None:
        """Models are loaded: answer from now on."""
        self._parts = validator, translator

    def stop(self, refusal: DragomanError) -> None:
        """Refuse every new call with this error. Calls that run go on; streams end once all they sent is answered."""
        self._refusal = refusal
        self._parts = None
        self._stopping.set()

    async def TranslateText(  # noqa: N802
        self, request: pb.TranslateTextRequest, context: Any
    ) -> pb.TranslateTextResponse:
        """Translate a list of texts."""
        validator, translator = self._ready()
        with self.active:
            valid = validator.validate(
                request_from_proto(
                    request, request_id=call_var.get().key, deadline=self._deadline(context)
                )
            )
            translations = await translator.translate(valid)
        manifest = translator.manifest(valid.model)
        response = pb.TranslateTextResponse(
            model=manifest.name,
            model_version=manifest.version,
            source_language_code=manifest.source_language,
            target_language_code=manifest.target_language,
        )
        for each in translations:
            self._write(response.translations.add(), each, valid.return_scores)
        return response

    async def ListModels(  # noqa: N802
        self, request: pb.ListModelsRequest, context: Any
    ) -> pb.ListModelsResponse:
        """List the loaded models."""
        validator, _ = self._ready()
        manifests = validator.find(request.source_language_code, request.target_language_code)
        return pb.ListModelsResponse(models=[model_to_proto(each) for each in manifests])

    async def StreamTranslateText(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.StreamTranslateTextRequest], context: Any
    ) -> AsyncIterator[pb.StreamTranslateTextResponse]:
        """Translate texts as they come, and answer each when it is finished."""
        answer = functools.partial(
            self._answer_item,
            parts=self._ready(),
            key=call_var.get().key,
            deadline=self._deadline(context),
            unanswered=set(),
        )
        items = until(self._stopping, request_iterator)
        with self.active:
            async with aclosing(
                answer_as_finished(items, answer, self._max_stream_items)
            ) as answers:
                async for response in answers:
                    yield response
        if self._stopping.is_set():
            raise self._refusal

    async def _answer_item(
        self,
        item: pb.StreamTranslateTextRequest,
        *,
        parts: _Parts,
        key: str,
        deadline: float | None,
        unanswered: set[str],
    ) -> pb.StreamTranslateTextResponse:
        """Answer one text of a stream; whatever goes wrong is its status."""
        fault = _item_fault(item.id, unanswered)
        if fault is not None:
            return self._refused(item.id, fault)
        unanswered.add(item.id)
        request = stream_request_from_proto(item, request_id=key, deadline=deadline)
        response = await value_or_error(self._translate_item(item.id, request, parts))
        unanswered.discard(item.id)
        return self._refused(item.id, response) if isinstance(response, Exception) else response

    async def _translate_item(
        self, item_id: str, request: TranslationRequest, parts: _Parts
    ) -> pb.StreamTranslateTextResponse:
        validator, translator = parts
        valid = validator.validate(request)
        (translation,) = await translator.translate(valid)
        manifest = translator.manifest(valid.model)
        response = pb.StreamTranslateTextResponse(
            id=item_id,
            model=manifest.name,
            model_version=manifest.version,
            source_language_code=manifest.source_language,
            target_language_code=manifest.target_language,
        )
        self._write(response.translation, translation, valid.return_scores)
        return response

    def _refused(self, item_id: str, error: Exception) -> pb.StreamTranslateTextResponse:
        response = pb.StreamTranslateTextResponse(id=item_id)
        translation = Translation(translated_text="", error=as_told(error))
        self._write(response.translation, translation, False)
        return response

    def _write(self, message: pb.Translation, translation: Translation, with_scores: bool) -> None:
        if translation.error is not None:
            reason = entry_of(translation.error).rejection
            if reason is not None:
                self._observer.on_rejected(reason)
        write_translation(message, translation, with_scores=with_scores)

    def _ready(self) -> _Parts:
        if self._parts is None:
            self.active.note_arrival()
            raise self._refusal
        return self._parts

    def _deadline(self, context: Any) -> float | None:
        seconds_left = context.time_remaining()
        return None if seconds_left is None else self._clock() + seconds_left


class GrpcServer:
    """Listens, and ends without losing a call."""

    def __init__(
        self,
        config: ServerConfig,
        servicer: TranslationServicer,
        observer: RpcObserver,
        *,
        add_ons: Sequence[AddOn] = (),
        lines: RequestLines | None = None,
    ) -> None:
        """Take what answers, what adds further services, and what the log takes. Nothing listens before `start`."""
        self._config = config
        self._servicer = servicer
        self._add_ons = add_ons
        self._handlers = WatchedHandlers(CallWatcher(observer, lines))
        self._server = grpc.aio.server(handlers=(self._handlers,), options=_channel_options(config))
        self.port = 0

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(
            self._servicer, self._handlers
        )
        for add_on in self._add_ons:
            await add_on(self._handlers)
        listen = self._config.listen
        # Asked first: of several addresses of a name the library takes those that it gets, and is content.
        fault = listen_fault(listen)
        try:
            self.port = 0 if fault else self._server.add_insecure_port(listen)
        except RuntimeError as error:
            fault = str(error)
        if fault:
            raise ConfigError(f"Cannot listen on {listen} (`server.listen`): {fault}.")
        await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, let running ones end for at most this long, and close."""
        await self._server.stop(grace_seconds)


def _channel_options(config: ServerConfig) -> list[tuple[str, int]]:
    def milliseconds(seconds: float) -> int:
        return int(seconds * 1000)

    return [
        # Without it a second server shares a port that is in use, and no error is raised.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", config.max_receive_message_bytes),
        ("grpc.max_send_message_length", config.max_send_message_bytes),
        ("grpc.keepalive_time_ms", milliseconds(config.keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", milliseconds(config.keepalive_timeout_seconds)),
        # Clients may ping as often as we do ourselves, with or without calls.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", milliseconds(10)),
        ("grpc.keepalive_permit_without_calls", 1),
        # The library would ping a client while it sends, to find out how large the window should be: two more messages
        # on the wire every other call. The window is as large from the beginning as it would make it.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.max_connection_age_ms", milliseconds(config.max_connection_age_seconds)),
        ("grpc.max_connection_age_grace_ms", milliseconds(config.max_connection_age_grace_seconds)),
    ]


def listen_fault(address: str) -> str:
    """Tell why an address cannot be listened on, or "" when it can: the library only says that it failed."""
    host, port = split_address(address)
    try:
        for family, kind, protocol, _, target in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
                probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _item_fault(item_id: str, unanswered: set[str]) -> DragomanError | None:
    if not 1 <= len(item_id) <= _MAX_ITEM_ID_CHARACTERS:
        return InvalidRequestError(
            f"`id` must have 1 to {_MAX_ITEM_ID_CHARACTERS} characters, but has {len(item_id)}."
        )
    if item_id in unanswered:
        return InvalidRequestError("`id` must not be that of a text that is still unanswered.")
    return None
