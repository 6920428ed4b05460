"""Traffic of every kind, so that every panel has something to show: streams, refusals, cancellations, cut answers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
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


def drive(address: str, seconds: float, *, num_clients: int = 6) -> None:
    """Call a server for a while, in waves, with every model that it has."""
    asyncio.run(_drive(address, seconds, num_clients))


async def _drive(address: str, seconds: float, num_clients: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        models = (await stub.ListModels(pb.ListModelsRequest())).models
        ends_at = time.monotonic() + seconds
        await asyncio.gather(
            *(
                _be_client(stub, models[number % len(models)], random.Random(number), ends_at)
                for number in range(num_clients)
            )
        )


async def _be_client(stub: Any, model: Any, chance: random.Random, ends_at: float) -> None:
    kinds = (_call, _call, _call, _call, _stream, _cancel, _cut, _be_refused)
    while (left := ends_at - time.monotonic()) > 0:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await chance.choice(kinds)(stub, model, chance)
        wave = 1.0 + math.sin(2 * math.pi * left / _WAVE_SECONDS)
        await asyncio.sleep(chance.expovariate(1 / (_PAUSE_SECONDS * (0.2 + wave))))


async def _call(stub: Any, model: Any, chance: random.Random) -> None:
    await stub.TranslateText(_request(model, chance), timeout=_CALL_SECONDS)


async def _stream(stub: Any, model: Any, chance: random.Random) -> None:
    items = [
        pb.StreamTranslateTextRequest(
            id=str(number),
            content=text,
            source_language_code=model.source_language_code,
            target_language_code=model.target_language_code,
        )
        for number, text in enumerate(chance.choices(load_texts(), k=_MAX_TEXTS))
    ]
    async for _ in stub.StreamTranslateText(iter(items), timeout=_CALL_SECONDS):
        pass


async def _cancel(stub: Any, model: Any, chance: random.Random) -> None:
    call = stub.TranslateText(_request(model, chance), timeout=_CALL_SECONDS)
    asyncio.get_running_loop().call_later(chance.uniform(0, 0.1), call.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await call


async def _cut(stub: Any, model: Any, chance: random.Random) -> None:
    await stub.TranslateText(_request(model, chance, max_target_tokens=4), timeout=_CALL_SECONDS)


async def _be_refused(stub: Any, model: Any, chance: random.Random) -> None:
    await stub.TranslateText(_request(model, chance, beam_size=1000), timeout=_CALL_SECONDS)


def _request(model: Any, chance: random.Random, **options: Any) -> pb.TranslateTextRequest:
    return pb.TranslateTextRequest(
        contents=chance.choices(load_texts(), k=chance.randint(1, _MAX_TEXTS)),
        source_language_code=model.source_language_code,
        target_language_code=model.target_language_code,
        options=pb.TranslationOptions(**options),
    )
