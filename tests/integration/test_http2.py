"""The lean client of the benchmarks against the real library's server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from benchmarks.http2 import CallFailedError, Connection, connect
from tests.asynchronous import run_async

PATH = "/test.Echo/Echo"


async def echo(message: bytes, context: Any) -> bytes:
    """Say it again; some messages are orders."""
    if message == b"fail":
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "as you wish")
    if message == b"wait":
        await asyncio.sleep(60)
    return message * 2


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[grpc.aio.Server, Connection]]:
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = await connect(f"127.0.0.1:{port}", PATH)
    try:
        yield server, connection
    finally:
        connection.close()
        await server.stop(0)


@run_async
async def test_messages_come_back() -> None:
    async with connected() as (_, connection):
        for message in (b"", b"a", b"x" * 16_379, b"x" * 16_380, b"y" * 60_000):
            assert await connection.call(message) == message * 2


@run_async
async def test_calls_may_overlap_and_be_many() -> None:
    async with connected() as (_, connection):
        messages = [str(number).encode() * 400 for number in range(300)]
        for _ in range(3):
            part = [messages[start : start + 30] for start in range(0, 300, 30)]
            for each in part:
                answers = await asyncio.gather(*map(connection.call, each))
                assert answers == [message * 2 for message in each]


@run_async
async def test_a_call_that_fails_is_told_and_harms_no_other() -> None:
    async with connected() as (_, connection):
        other = asyncio.create_task(connection.call(b"other"))
        with pytest.raises(CallFailedError):
            await connection.call(b"fail")
        assert await other == b"otherother"
        assert await connection.call(b"next") == b"nextnext"


@run_async
async def test_a_server_that_ends_fails_the_calls_that_run_and_those_that_follow() -> None:
    async with connected() as (server, connection):
        waiting = asyncio.create_task(connection.call(b"wait"))
        await connection.call(b"is there")
        await server.stop(0)
        with pytest.raises(CallFailedError):
            await waiting
        with pytest.raises(CallFailedError):
            await connection.call(b"late")


@run_async
async def test_a_message_that_is_too_long_is_refused() -> None:
    async with connected() as (_, connection):
        with pytest.raises(ValueError, match="at most 60000 bytes"):
            await connection.call(b"x" * 60_001)
