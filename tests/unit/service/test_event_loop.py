"""The loop of a server asks for events seldom while it is busy, but neither never nor late when it is idle."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading

import pytest

from service import event_loop
from service.event_loop import PatientSelector


def test_who_has_callbacks_to_run_gets_events_every_ninth_round() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PatientSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        theirs.send(b"x")
        found = [len(selector.select(0)) for _ in range(18)]
    assert found == ([0] * 8 + [1]) * 2


def test_who_waits_gets_events_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PatientSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        theirs.send(b"x")
        assert [len(selector.select(timeout)) for timeout in (1.0, None, 0.001)] == [1, 1, 1]


def test_callbacks_that_never_end_do_not_keep_events_away() -> None:
    async def test() -> bytes:
        loop = asyncio.get_running_loop()
        assert isinstance(loop._selector, PatientSelector)  # type: ignore[attr-defined]

        def again() -> None:
            loop.call_soon(again)

        again()
        reader, writer = await asyncio.open_connection(sock=ours)
        threading.Timer(0.01, lambda: theirs.sendall(b"hello\n")).start()
        try:
            return await asyncio.wait_for(reader.readline(), 5)
        finally:
            writer.close()

    ours, theirs = socket.socketpair()
    with theirs:
        assert event_loop.run(test()) == b"hello\n"


def test_what_the_coroutine_raises_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        event_loop.run(fail())
