"""Translate a long run of lines quickly and in order.

Lines are gathered into calls of moderate size and several calls are under way at once, so that the engine's batch
stays full; what is available is sent without waiting for more, so that a person who types gets an answer a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from commands.backend import Answer, Backend, Options
from commands.lines import Line

__all__ = ["PipelineLimits", "translate_in_order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """How much is sent in one call and how many calls are under way."""

    max_call_lines: int = 32
    max_call_characters: int = 20_000
    max_calls: int = 8


@dataclass(frozen=True, slots=True)
class _End:
    """What follows the last line: the error that ended the input, if any."""

    error: Exception | None


@dataclass(frozen=True, slots=True)
class _Call:
    lines: Sequence[Line]
    answers: asyncio.Task[list[Answer]]


async def translate_in_order(
    backend: Backend,
    lines: Iterator[Line],
    options: Options,
    limits: PipelineLimits | None = None,
) -> AsyncGenerator[list[tuple[Line, Answer]]]:
    """Give the answers in the order of the lines, a call at a time.

    An error of the input is raised after the answers to everything before it.
    """
    limits = limits or PipelineLimits()
    source = _Source(lines, capacity=limits.max_call_lines * limits.max_calls)
    sender = _Sender(source, backend, options, limits)
    sending = asyncio.create_task(sender.run())
    try:
        while isinstance(item := await sender.calls.get(), _Call):
            yield list(zip(item.lines, await item.answers, strict=True))
        if item.error is not None:
            raise item.error
    finally:
        source.close()
        sending.cancel()
        await sender.cancel_calls()
        await asyncio.gather(sending, return_exceptions=True)


class _Sender:
    """Takes lines from a source and puts calls, which are under way, into `calls`."""

    def __init__(
        self, source: _Source, backend: Backend, options: Options, limits: PipelineLimits
    ) -> None:
        self._source = source
        self.calls: asyncio.Queue[_Call | _End] = asyncio.Queue(limits.max_calls)
        self._backend = backend
        self._options = options
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.max_calls)
        self._open: set[asyncio.Task[list[Answer]]] = set()

    async def run(self) -> None:
        item: Line | _End | None = await self._source.get()
        while not isinstance(item, _End):
            if item is None:
                item = await self._source.get()
                continue
            await self._slots.acquire()
            batch, item = self._gather(item)
            await self.calls.put(_Call(batch, self._start(batch)))
        await self.calls.put(item)

    async def cancel_calls(self) -> None:
        for call in self._open:
            call.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _start(self, batch: Sequence[Line]) -> asyncio.Task[list[Answer]]:
        texts = [line.text for line in batch]
        call = asyncio.create_task(self._backend.translate(texts, self._options))
        self._open.add(call)
        call.add_done_callback(self._finish)
        return call

    def _finish(self, call: asyncio.Task[list[Answer]]) -> None:
        self._slots.release()
        if not call.cancelled() and call.exception() is None:
            self._open.discard(call)  # a failed call stays, for `cancel_calls` to look at

    def _gather(self, first: Line) -> tuple[list[Line], Line | _End | None]:
        """Take what is available and fits into one call; give also the item that did not fit, if any."""
        batch, size = [first], len(first.text)
        while (item := self._source.get_nowait()) is not None:
            if isinstance(item, _End):
                return batch, item
            size += len(item.text)
            if size > self._limits.max_call_characters or len(batch) == self._limits.max_call_lines:
                return batch, item
            batch.append(item)
        return batch, None


class _Source:
    """Lines on their way from a thread that reads them, for reading a terminal or a pipe blocks.

    The thread is a daemon: it may wait for a line that never comes.
    """

    def __init__(self, lines: Iterator[Line], capacity: int) -> None:
        self._lines = lines
        self._queue: asyncio.Queue[Line | _End] = asyncio.Queue()
        self._room = threading.Semaphore(capacity)
        self._closed = False
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    async def get(self) -> Line | _End:
        item = await self._queue.get()
        self._room.release()
        return item

    def get_nowait(self) -> Line | _End | None:
        if self._queue.empty():
            return None
        self._room.release()
        return self._queue.get_nowait()

    def close(self) -> None:
        """Let the thread end at its next line."""
        self._closed = True
        self._room.release()

    def _read(self) -> None:
        try:
            for line in self._lines:
                self._put(line)
                if self._closed:
                    return
        except Exception as error:
            self._put(_End(error))
        else:
            self._put(_End(None))

    def _put(self, item: Line | _End) -> None:
        self._room.acquire()
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
