"""Clients that call a server without a pause and note what becomes of each call."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from protos.dragoman.v1 import translation_pb2, translation_pb2_grpc

__all__ = ["SENTENCES", "Call", "Load", "translate"]

SENTENCES = (
    "The committee decided on Tuesday that the budget would not be approved.",
    "Where is the nearest railway station?",
    "She has lived in Lisbon since 1998, and her brother moved there last year.",
    "Please send the signed contract to our office before the end of the month.",
)

_TEXTS_A_CALL = 4


@dataclass(frozen=True, slots=True)
class Call:
    """What became of a call; times of the monotonic clock."""

    began: float
    ended: float
    code: grpc.StatusCode
    texts: int
    characters: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class Load:
    """Clients that make one call after the other; a context that ends when each has its last answer."""

    def __init__(
        self,
        address: str,
        *,
        num_clients: int,
        texts: Sequence[str] = SENTENCES,
        stop_at_failure: bool = False,
        service_config: str = "",
    ) -> None:
        """Prepare clients of a connection each.

        Args:
            address: Whom to call.
            num_clients: Calls at a time.
            texts: What the calls carry, four each, again and again.
            stop_at_failure: Whether a client ends with its first call that fails.
            service_config: How gRPC itself balances and tries again, as JSON; by default it does neither.
        """
        self.calls: list[Call] = []
        self._address = address
        self._requests = [
            _request(texts[start : start + _TEXTS_A_CALL])
            for start in range(0, len(texts), _TEXTS_A_CALL)
        ]
        self._stop_at_failure = stop_at_failure
        self._service_config = service_config
        self._over = threading.Event()
        self._clients = [
            threading.Thread(
                target=self._call_on, args=(number * len(self._requests) // num_clients,)
            )
            for number in range(num_clients)
        ]

    def __enter__(self) -> Load:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for client in self._clients:
            client.join()

    def _call_on(self, first: int) -> None:
        requests = itertools.cycle([*self._requests[first:], *self._requests[:first]])
        with _channel(self._address, self._service_config) as channel:
            stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
            while not self._over.is_set():
                request = next(requests)
                began = time.monotonic()
                code = _outcome(stub, request)
                ended = time.monotonic()
                characters = sum(map(len, request.contents))
                self.calls.append(Call(began, ended, code, len(request.contents), characters))
                if code is not grpc.StatusCode.OK:
                    if self._stop_at_failure:
                        return
                    time.sleep(0.05)


def translate(address: str, text: str) -> tuple[grpc.StatusCode, str]:
    """Make one call over a new connection; the status and the translation."""
    with _channel(address) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        try:
            response = stub.TranslateText(_request([text]), timeout=20)
        except grpc.RpcError as error:
            return _code(error), ""
        return grpc.StatusCode.OK, response.translations[0].translated_text


def _channel(address: str, service_config: str = "") -> grpc.Channel:
    options: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
    if service_config:
        options.append(("grpc.service_config", service_config))
    else:
        options.append(("grpc.enable_retries", 0))
    return grpc.insecure_channel(address, options=options)


def _request(texts: Sequence[str]) -> translation_pb2.TranslateTextRequest:
    return translation_pb2.TranslateTextRequest(
        contents=texts, source_language_code="en", target_language_code="pt"
    )


def _outcome(stub: Any, request: translation_pb2.TranslateTextRequest) -> grpc.StatusCode:
    try:
        stub.TranslateText(request, timeout=30)
    except grpc.RpcError as error:
        return _code(error)
    return grpc.StatusCode.OK


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    assert isinstance(error, grpc.Call)
    return error.code()
