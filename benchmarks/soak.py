"""Does a server come back to nothing after a storm of calls and cancellations?

Many clients translate for a while, some of them cancelling at random moments. Afterwards the gauges of what is running
must be exactly zero, memory must not have grown in the second half, and a fresh request must be answered at once.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import math
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import rich.console
import rich.table

from benchmarks.corpus import load_texts
from benchmarks.server import Server, start_server
from protos.dragoman.v1 import translation_pb2, translation_pb2_grpc

__all__ = ["check_memory"]

GAUGES = (
    "dragoman_running_sequences",
    "dragoman_running_rows",
    "dragoman_queue_depth",
    "dragoman_kv_cache_bytes",
)
MAX_MEMORY_GROWTH = 0.05
SECONDS_BETWEEN_READINGS = 0.5
LEAST_SECONDS = 20.0
MAX_FRESH_SECONDS = 1.0
SETTLE_SECONDS = 5.0
MAX_CALL_TEXTS = 8
MAX_CANCEL_SECONDS = 2.0
EXPECTED = {"OK", "CANCELLED", "RESOURCE_EXHAUSTED"}


@dataclass(slots=True, kw_only=True)
class Storm:
    """What the clients do and what came of it."""

    source: str
    target: str
    texts: list[str]
    cancel_share: float
    ends_at: float
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong_counts: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(1))


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict."""

    name: str
    value: str
    wanted: str
    passed: bool


def main() -> int:
    """Run the storm and print the verdict; 1 when something was missed."""
    arguments = _parse_arguments()
    with start_server(arguments.bundle) as server:
        storm, checks = asyncio.run(_run(server, arguments))
    _print(storm, checks)
    return 0 if all(check.passed for check in checks) else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="default: %(default)s")
    parser.add_argument("--clients", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--cancel-share", type=float, default=0.3, help="default: %(default)s")
    parser.add_argument("--texts", type=Path, help="a file with a text a line")
    parser.add_argument("--bundle", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    if not LEAST_SECONDS <= arguments.seconds < math.inf:
        parser.error(f"--seconds must be {LEAST_SECONDS:g} at least: before, memory only warms up")
    if arguments.clients < 1:
        parser.error("--clients must be 1 at least")
    return arguments


async def _run(server: Server, arguments: argparse.Namespace) -> tuple[Storm, list[Check]]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        model = (await stub.ListModels(translation_pb2.ListModelsRequest())).models[0]
    storm = Storm(
        source=model.source_language_code,
        target=model.target_language_code,
        texts=load_texts(arguments.texts),
        cancel_share=arguments.cancel_share,
        ends_at=time.monotonic() + arguments.seconds,
    )
    watching = asyncio.create_task(_watch_memory(server, storm.ends_at))
    await asyncio.gather(*(_be_client(server.address, storm) for _ in range(arguments.clients)))
    memory = await watching
    gauges, settle_seconds = await _wait_for_zero(server)
    checks = [Check(name, f"{gauges[name]:g}", "0", gauges[name] == 0) for name in GAUGES]
    checks.append(Check("seconds until all are zero", f"{settle_seconds:.2f}", "", True))
    checks.append(check_memory(memory))
    checks.append(await _check_fresh_request(server.address, storm))
    unexpected = sum(n for code, n in storm.outcomes.items() if code not in EXPECTED)
    checks.append(Check("calls with an unexpected end", str(unexpected), "0", unexpected == 0))
    wrong = storm.wrong_counts
    checks.append(Check("answers with texts missing", str(wrong), "0", wrong == 0))
    return storm, checks


async def _watch_memory(server: Server, ends_at: float) -> list[int]:
    """Read resident bytes again and again until the time is over."""
    found = [server.read_resident_bytes()]
    while time.monotonic() < ends_at:
        await asyncio.sleep(SECONDS_BETWEEN_READINGS)
        found.append(server.read_resident_bytes())
    return found


async def _be_client(address: str, storm: Storm) -> None:
    """Call again and again until the time is over, on a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        while time.monotonic() < storm.ends_at:
            one_call = _stream if storm.random.random() < 0.25 else _call
            try:
                num_asked, num_answered = await one_call(stub, storm)
            except asyncio.CancelledError:
                storm.outcomes["CANCELLED"] += 1
            except grpc.aio.AioRpcError as error:
                storm.outcomes[error.code().name] += 1
                await asyncio.sleep(0.05)
            else:
                storm.outcomes["OK"] += 1
                storm.wrong_counts += num_asked != num_answered


async def _call(stub: Any, storm: Storm) -> tuple[int, int]:
    texts = storm.random.choices(storm.texts, k=storm.random.randint(1, MAX_CALL_TEXTS))
    request = translation_pb2.TranslateTextRequest(
        contents=texts,
        source_language_code=storm.source,
        target_language_code=storm.target,
        options=_random_options(storm),
    )
    call = stub.TranslateText(request)
    timer = _cancel_sometimes(call, storm)
    try:
        response = await call
    finally:
        timer.cancel()
    return len(texts), len(response.translations)


async def _stream(stub: Any, storm: Storm) -> tuple[int, int]:
    texts = storm.random.choices(storm.texts, k=storm.random.randint(1, 4 * MAX_CALL_TEXTS))
    requests = [
        translation_pb2.StreamTranslateTextRequest(
            id=str(number),
            content=text,
            source_language_code=storm.source,
            target_language_code=storm.target,
            options=_random_options(storm),
        )
        for number, text in enumerate(texts)
    ]
    call = stub.StreamTranslateText(iter(requests))
    timer = _cancel_sometimes(call, storm)
    try:
        answered = {response.id async for response in call}
    finally:
        timer.cancel()
    return len(texts), len(answered)


def _random_options(storm: Storm) -> translation_pb2.TranslationOptions:
    return translation_pb2.TranslationOptions(beam_size=storm.random.choice((1, 2, 4, 8)))


def _cancel_sometimes(call: Any, storm: Storm) -> asyncio.TimerHandle:
    loop = asyncio.get_running_loop()
    if storm.random.random() >= storm.cancel_share:
        return loop.call_later(0, lambda: None)
    return loop.call_later(storm.random.uniform(0, MAX_CANCEL_SECONDS), call.cancel)


async def _wait_for_zero(server: Server) -> tuple[dict[str, float], float]:
    start = time.monotonic()
    while True:
        metrics = await asyncio.to_thread(server.read_metrics)
        waited = time.monotonic() - start
        if all(metrics[name] == 0 for name in GAUGES) or waited > SETTLE_SECONDS:
            return metrics, waited
        await asyncio.sleep(0.02)


def check_memory(readings: list[int]) -> Check:
    """Compare the third quarter of the time with the last; medians, as what a moment needs goes up and down.

    Args:
        readings: Resident bytes at equal distances, from the beginning to the end; two at least.
    """
    quarter = max(1, len(readings) // 4)
    before = statistics.median(readings[-2 * quarter : -quarter])
    after = statistics.median(readings[-quarter:])
    growth = after / before - 1
    text = f"{before / 2**20:.0f} -> {after / 2**20:.0f} MiB ({growth:+.1%})"
    passed = growth <= MAX_MEMORY_GROWTH
    return Check("memory, third -> last quarter", text, f"at most {MAX_MEMORY_GROWTH:+.0%}", passed)


async def _check_fresh_request(address: str, storm: Storm) -> Check:
    request = translation_pb2.TranslateTextRequest(
        contents=storm.texts[:1],
        source_language_code=storm.source,
        target_language_code=storm.target,
    )
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        start = time.monotonic()
        await stub.TranslateText(request, timeout=30)
        seconds = time.monotonic() - start
    name, wanted = "fresh request, seconds", f"< {MAX_FRESH_SECONDS:g}"
    return Check(name, f"{seconds:.3f}", wanted, seconds < MAX_FRESH_SECONDS)


def _print(storm: Storm, checks: list[Check]) -> None:
    table = rich.table.Table("check", "measured", "wanted", "verdict")
    for code, count in sorted(storm.outcomes.items()):
        table.add_row(f"calls ended {code}", f"{count:,}", "", "")
    for check in checks:
        table.add_row(check.name, check.value, check.wanted, "ok" if check.passed else "MISSED")
    rich.console.Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
