"""What the log of a running server holds about calls: one line each, sampled under load, never a text."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.config import LogConfig
from service.log import configure_logging
from service.request_lines import RequestLines
from service.segmenter import Segmenter
from tests.fake_app import Running, make_request, running

SECRET = "mycatsnameisfelix"


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _log(config: LogConfig) -> tuple[io.StringIO, RequestLines]:
    stream = io.StringIO()
    return stream, configure_logging(config, stream)


async def _ready(app: Running) -> Running:
    while app.application._translator is None:
        await asyncio.sleep(0.005)
    return app


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def _about_calls(stream: io.StringIO) -> list[dict[str, Any]]:
    return [line for line in _lines(stream) if "request_id" in line]


def test_a_call_is_one_line_with_its_request_id_and_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, lines = _log(LogConfig())

    async def test() -> None:
        async with running(monkeypatch, lines=lines) as app:
            await _ready(app)
            await app.stub.TranslateText(
                make_request(SECRET), metadata=(("x-request-id", "request-7"),)
            )
            await health_pb2_grpc.HealthStub(app.channel).Check(health_pb2.HealthCheckRequest())
            await app.stop()

    asyncio.run(asyncio.wait_for(test(), 30))
    (line,) = _about_calls(stream)
    assert line["request_id"] == "request-7"
    assert line["method"] == "dragoman.v1.TranslationService/TranslateText"
    assert (line["code"], line["level"]) == ("OK", "INFO")
    assert 0 < line["seconds"] < 30
    assert SECRET not in stream.getvalue().lower()


def test_under_load_lines_are_sampled_and_none_is_lost_from_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, lines = _log(LogConfig(max_request_lines_per_second=5))
    num_calls = 300
    num_records = 0

    def count(record: logging.LogRecord) -> bool:
        nonlocal num_records
        num_records += 1
        return True

    logger = logging.getLogger("service.interceptors")
    logger.addFilter(count)

    async def test() -> float:
        async with running(monkeypatch, lines=lines) as app:
            await _ready(app)
            began = asyncio.get_running_loop().time()
            await asyncio.gather(
                *(app.stub.TranslateText(make_request("a")) for _ in range(num_calls))
            )
            seconds = asyncio.get_running_loop().time() - began
            await asyncio.sleep(1.05)  # a new second, in which one line tells of those left out
            await app.stub.TranslateText(make_request("a"))
            await app.stop()
            return seconds

    seconds = asyncio.run(asyncio.wait_for(test(), 60))
    logger.removeFilter(count)
    found = _about_calls(stream)
    assert len(found) <= 5 * (int(seconds) + 2) + 1
    assert len(found) + sum(line.get("left_out", 0) for line in found) == num_calls + 1
    assert max(Counter(line["request_id"] for line in found).values()) == 1
    assert num_records == len(found)


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_a_fault_is_one_line_without_the_text_that_caused_it(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    stream, lines = _log(LogConfig(level=level))

    def fail(self: Segmenter, text: str) -> Any:
        raise RuntimeError(f"cannot cut {text!r}")

    monkeypatch.setattr(Segmenter, "segment", fail)

    async def test() -> None:
        async with running(monkeypatch, lines=lines) as app:
            await _ready(app)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await app.stub.TranslateText(
                    make_request(SECRET), metadata=(("x-request-id", "request-8"),)
                )
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            assert "request-8" in str(caught.value.details())
            await app.stop()

    asyncio.run(asyncio.wait_for(test(), 30))
    (line,) = _about_calls(stream)
    assert (line["request_id"], line["level"]) == ("request-8", "ERROR")
    assert "RuntimeError" in line["message"]
    assert "in fail" in line["message"]  # where it happened
    assert SECRET not in stream.getvalue().lower()
