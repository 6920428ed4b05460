"""Traffic of every kind, so that every panel has something to show: streams, refusals, cancellations, cut answers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from benchmarks.corpus import load_texts
from protos.dragoman.v1 import translation_pb2 as pb
from protos.dragoman.v1 import translation_pb2_grpc

__all__ = ["drive"]

_CALL_SECONDS = 30.0
_MAX_TEXTS = 8
_PAUSE_SECONDS = 0.15
_WAVE_SECONDS = 60.0
_LANGUAGE = "en"
"""Of the texts at hand."""


def drive(address: str, seconds: float, *, num_clients: int = 6) -> None:
    """Call a server for a while, in waves, with every model that it has."""
    asyncio.run(_drive(address, seconds, num_clients))


async def _drive(address: str, seconds: float, num_clients: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        models = (await stub.ListModels(pb.ListModelsRequest())).models
        users = [_User(stub, model, await _texts_for(stub, model, models)) for model in models]
        ends_at = time.monotonic() + seconds
        await asyncio.gather(
            *(
                _be_client(users[number % len(users)], random.Random(number), ends_at)
                for number in range(num_clients)
            )
        )


@dataclass(frozen=True, slots=True)
class _User:
    """Somebody with texts for a model."""

    stub: Any
    model: Any
    texts: Sequence[str]

    def request(self, chance: random.Random, **options: Any) -> pb.TranslateTextRequest:
        """Ask for a few of the texts."""
        return pb.TranslateTextRequest(
            contents=chance.choices(self.texts, k=chance.randint(1, _MAX_TEXTS)),
            source_language_code=self.model.source_language_code,
            target_language_code=self.model.target_language_code,
            options=pb.TranslationOptions(**options),
        )


async def _texts_for(stub: Any, model: Any, models: Sequence[Any]) -> Sequence[str]:
    """Give texts in the language of a model: ours, or what another model makes of them."""
    texts = load_texts()
    pairs = {(each.source_language_code, each.target_language_code) for each in models}
    if (_LANGUAGE, model.source_language_code) not in pairs:
        return texts
    request = pb.TranslateTextRequest(
        contents=texts,
        source_language_code=_LANGUAGE,
        target_language_code=model.source_language_code,
    )
    response = await stub.TranslateText(request, timeout=_CALL_SECONDS)
    return [translation.translated_text for translation in response.translations]


async def _be_client(user: _User, chance: random.Random, ends_at: float) -> None:
    kinds = (_call, _call, _call, _call, _stream, _cancel, _cut, _be_refused)
    while (left := ends_at - time.monotonic()) > 0:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await chance.choice(kinds)(user, chance)
        wave = 1.0 + math.sin(2 * math.pi * left / _WAVE_SECONDS)
        await asyncio.sleep(chance.expovariate(1 / (_PAUSE_SECONDS * (0.2 + wave))))


async def _call(user: _User, chance: random.Random) -> None:
    await user.stub.TranslateText(user.request(chance), timeout=_CALL_SECONDS)


async def _stream(user: _User, chance: random.Random) -> None:
    items = [
        pb.StreamTranslateTextRequest(
            id=str(number),
            content=text,
            source_language_code=user.model.source_language_code,
            target_language_code=user.model.target_language_code,
        )
        for number, text in enumerate(chance.choices(user.texts, k=_MAX_TEXTS))
    ]
    async for _ in user.stub.StreamTranslateText(iter(items), timeout=_CALL_SECONDS):
        pass


async def _cancel(user: _User, chance: random.Random) -> None:
    call = user.stub.TranslateText(user.request(chance), timeout=_CALL_SECONDS)
    asyncio.get_running_loop().call_later(chance.uniform(0, 0.1), call.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await call


async def _cut(user: _User, chance: random.Random) -> None:
    await user.stub.TranslateText(user.request(chance, max_target_tokens=4), timeout=_CALL_SECONDS)


async def _be_refused(user: _User, chance: random.Random) -> None:
    await user.stub.TranslateText(user.request(chance, beam_size=1000), timeout=_CALL_SECONDS)
