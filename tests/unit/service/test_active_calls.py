"""Calls are waited for until all have ended, or until the time is up."""

from __future__ import annotations

import asyncio

from service.active_calls import ActiveCalls
from tests.instant_loop import run_instantly


def test_idle_is_when_the_last_of_several_calls_has_ended() -> None:
    async def test() -> None:
        active = ActiveCalls(clock=asyncio.get_running_loop().time)
        assert await active.wait_until_idle(1.0)
        with active:
            with active:
                assert not await active.wait_until_idle(1.0)
            assert not await active.wait_until_idle(1.0)
        assert await active.wait_until_idle(1.0)

    run_instantly(test())


def test_quiet_is_when_no_call_has_come_for_a_while_taken_or_refused() -> None:
    async def test() -> None:
        now = asyncio.get_running_loop().time
        active = ActiveCalls(clock=now)

        async def call() -> None:
            for _ in range(3):
                await asyncio.sleep(0.3)
                with active:
                    pass
            await asyncio.sleep(0.3)
            active.note_arrival()

        calls = asyncio.create_task(call())
        await active.wait_until_quiet(0.4, 10.0)
        assert calls.done()
        assert abs(now() - 1.6) < 1e-6

    run_instantly(test())


def test_who_waits_for_quiet_gives_up_when_the_time_is_up() -> None:
    async def test() -> None:
        now = asyncio.get_running_loop().time
        active = ActiveCalls(clock=now)

        async def call() -> None:
            while True:
                active.note_arrival()
                await asyncio.sleep(0.1)

        calls = asyncio.create_task(call())
        await active.wait_until_quiet(0.4, 2.0)
        assert 2.0 <= now() < 2.5
        calls.cancel()

    run_instantly(test())
