"""Items are answered concurrently, in finishing order, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from service.answer_stream import answer_as_finished, until


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 10))


async def _items(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


def test_answers_come_in_finishing_order() -> None:
    async def test() -> None:
        gates = [asyncio.Event() for _ in range(3)]
        gates[2].set()

        async def answer(number: int) -> int:
            await gates[number].wait()
            gates[number - 1].set()
            return number

        answers = [each async for each in answer_as_finished(_items(3), answer, 8)]
        assert answers == [2, 1, 0]

    _run(test())


@pytest.mark.parametrize("max_unanswered", [1, 3, 100])
def test_every_item_is_answered_once_whatever_the_room(max_unanswered: int) -> None:
    async def test() -> None:
        async def answer(number: int) -> int:
            await asyncio.sleep(0.001 * (number % 3))
            return number

        stream = answer_as_finished(_items(30), answer, max_unanswered)
        assert sorted([each async for each in stream]) == list(range(30))

    _run(test())


def test_closing_cancels_what_is_left() -> None:
    async def test() -> None:
        cancelled: list[int] = []

        async def answer(number: int) -> int:
            try:
                await asyncio.sleep(60 if number else 0)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise
            return number

        async with aclosing(answer_as_finished(_items(4), answer, 8)) as answers:
            assert await anext(answers) == 0
        assert sorted(cancelled) == [1, 2, 3]

    _run(test())


@pytest.mark.parametrize("place", ["item", "answer"])
def test_what_goes_wrong_comes_out_and_ends_the_rest(place: str) -> None:
    async def test() -> None:
        cancelled: list[int] = []

        async def items() -> AsyncIterator[int]:
            yield 0
            await asyncio.sleep(0.01)
            if place == "item":
                raise ValueError("broken")
            yield 1

        async def answer(number: int) -> int:
            if number:
                raise ValueError("broken")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise
            return number

        with pytest.raises(ValueError, match="broken"):
            async for _ in answer_as_finished(items(), answer, 8):
                pass
        assert cancelled == [0]

    _run(test())


def test_items_end_when_the_event_happens() -> None:
    async def test() -> None:
        event = asyncio.Event()
        seen: list[int] = []

        async def endless() -> AsyncIterator[int]:
            number = 0
            while True:
                await asyncio.sleep(0 if number < 3 else 60)
                yield number
                number += 1

        async for number in until(event, endless()):
            seen.append(number)
            if number == 2:
                asyncio.get_running_loop().call_later(0.01, event.set)
        assert seen == [0, 1, 2]

    _run(test())


def test_items_end_with_their_source() -> None:
    async def test() -> None:
        assert [each async for each in until(asyncio.Event(), _items(4))] == [0, 1, 2, 3]

    _run(test())


def test_an_error_of_the_source_comes_out() -> None:
    async def test() -> None:
        async def broken() -> AsyncIterator[int]:
            yield 1
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            async for _ in until(asyncio.Event(), broken()):
                pass

    _run(test())
