"""Streams of items: answer them concurrently, and stop reading them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["answer_as_finished", "until"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def answer_as_finished(
    items: AsyncIterator[Item], answer: Callable[[Item], Awaitable[Answer]], max_unanswered: int
) -> AsyncGenerator[Answer, None]:
    """Give one answer for each item, in the order in which they finish.

    Closing the generator cancels what is left.

    Args:
        items: Read only while fewer than `max_unanswered` are unanswered.
        answer: Answers one item; should not raise, for what it raises ends everything.
        max_unanswered: Items that may be in work, or answered but not yet taken.

    Raises:
        Exception: What reading the items or answering one of them raised.
    """
    finished: asyncio.Queue[asyncio.Future[Answer]] = asyncio.Queue()
    room = asyncio.Semaphore(max_unanswered)
    tasks: set[asyncio.Future[Answer]] = set()

    async def read() -> None:
        await room.acquire()
        async for item in items:
            task = asyncio.ensure_future(answer(item))
            tasks.add(task)
            task.add_done_callback(finished.put_nowait)
            await room.acquire()
        if tasks:
            await asyncio.wait(tasks)

    reader: asyncio.Future[Any] = asyncio.ensure_future(read())
    reader.add_done_callback(finished.put_nowait)  # after all answers, unless reading failed
    try:
        while (task := await finished.get()) is not reader:
            tasks.discard(task)
            yield task.result()
            room.release()
        reader.result()
    finally:
        for task in (reader, *tasks):
            task.cancel()
        await asyncio.wait([reader, *tasks])


async def until(event: asyncio.Event, items: AsyncIterator[Item]) -> AsyncGenerator[Item, None]:
    """Give items until there are no more, or until an event happens."""

    async def read() -> Item | None:
        return await anext(items, None)

    happened = asyncio.ensure_future(event.wait())
    try:
        while True:
            reading = asyncio.ensure_future(read())
            try:
                await asyncio.wait([reading, happened], return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not reading.done():
                    reading.cancel()
            if reading.cancelled() or not reading.done() or (item := reading.result()) is None:
                return
            yield item
    finally:
        happened.cancel()
