"""Does an answer depend on who else is in the batch?

The lines of a file are translated one at a time, in one call, and by many clients in random order beside neighbours of
other beam sizes. All three must give the same answers, bit for bit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import rich.console
import rich.table

from benchmarks.corpus import load_texts, texts_file
from benchmarks.server import start_server
from protos.dragoman.v1 import translation_pb2, translation_pb2_grpc

NEIGHBOUR_BEAM_SIZES = (1, 2, 4, 8)
MAX_CALL_TEXTS = 1024

Answer = tuple[str, float]


class Client:
    """Translates with one model and one beam size."""

    def __init__(self, stub: Any, model: translation_pb2.Model, beam_size: int | None) -> None:
        self._stub = stub
        self._model = model
        self._beam_size = beam_size

    async def translate(
        self, texts: Sequence[str], *, beam_size: int | None = None
    ) -> list[Answer]:
        """Translate in one call; the score is part of the answer."""
        options = translation_pb2.TranslationOptions(
            beam_size=beam_size or self._beam_size, return_scores=True
        )
        request = translation_pb2.TranslateTextRequest(
            contents=texts,
            source_language_code=self._model.source_language_code,
            target_language_code=self._model.target_language_code,
            model=self._model.name,
            options=options,
        )
        response = await self._stub.TranslateText(request)
        for translation in response.translations:
            if translation.status.code:
                raise SystemExit(f"a text was refused: {translation.status.message}")
        return [(each.translated_text, each.score) for each in response.translations]


def main() -> int:
    """Compare the three ways; 1 on a difference."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.independence", description=__doc__)
    parser.add_argument("texts", type=texts_file, nargs="?", help="a file with a text a line")
    parser.add_argument("--clients", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--beam-size", type=int, help="default: the model's own")
    parser.add_argument("--bundle", type=Path, action="append", default=[])
    parser.add_argument("--address", help="a running server (default: start one)")
    arguments = parser.parse_args()
    if arguments.address:
        return asyncio.run(_compare(arguments.address, arguments))
    with start_server(arguments.bundle) as server:
        return asyncio.run(_compare(server.address, arguments))


async def _compare(address: str, arguments: argparse.Namespace) -> int:
    texts = load_texts(arguments.texts)
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=limits) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        model = (await stub.ListModels(translation_pb2.ListModelsRequest())).models[0]
        client = Client(stub, model, arguments.beam_size)
        table = rich.table.Table("way", "texts", "seconds", "differ from alone")
        alone, seconds = await _timed(_one_at_a_time(client, texts))
        table.add_row("one at a time", str(len(texts)), f"{seconds:.1f}", "")
        together, seconds = await _timed(_in_one_call(client, texts))
        differing = [_count_differences(alone, together)]
        table.add_row("in one call", str(len(texts)), f"{seconds:.1f}", str(differing[0]))
        crowd, seconds = await _timed(_in_a_crowd(client, texts, arguments.clients))
        differing.append(_count_differences(alone, crowd))
        name = f"{arguments.clients} clients beside beams {NEIGHBOUR_BEAM_SIZES}"
        table.add_row(name, str(len(texts)), f"{seconds:.1f}", str(differing[1]))
    rich.console.Console().print(f"{model.name} {model.version}, {model.precision}", table)
    return 1 if any(differing) else 0


async def _timed(work: Any) -> tuple[list[Answer], float]:
    start = time.monotonic()
    answers: list[Answer] = await work
    return answers, time.monotonic() - start


async def _one_at_a_time(client: Client, texts: Sequence[str]) -> list[Answer]:
    return [(await client.translate([text]))[0] for text in texts]


async def _in_one_call(client: Client, texts: Sequence[str]) -> list[Answer]:
    answers: list[Answer] = []
    for start in range(0, len(texts), MAX_CALL_TEXTS):
        answers += await client.translate(texts[start : start + MAX_CALL_TEXTS])
    return answers


async def _in_a_crowd(client: Client, texts: Sequence[str], num_clients: int) -> list[Answer]:
    """Translate in random order, each call beside a neighbour of another beam size."""
    chance = random.Random(1)
    waiting = list(range(len(texts)))
    chance.shuffle(waiting)
    answers: dict[int, Answer] = {}

    async def work() -> None:
        while waiting:
            number = waiting.pop()
            neighbour = client.translate(
                [chance.choice(texts)], beam_size=chance.choice(NEIGHBOUR_BEAM_SIZES)
            )
            own, _ = await asyncio.gather(client.translate([texts[number]]), neighbour)
            answers[number] = own[0]

    await asyncio.gather(*(work() for _ in range(num_clients)))
    return [answers[number] for number in range(len(texts))]


def _count_differences(expected: Sequence[Answer], got: Sequence[Answer]) -> int:
    return sum(one != other for one, other in zip(expected, got, strict=True))


if __name__ == "__main__":
    sys.exit(main())
