import asyncio
import random
import threading

import pytest

from commands.backend import Answer, Options
from commands.errors import CommandError
from commands.lines import Line
from commands.pipeline import PipelineLimits, translate_in_order

LIMITS = PipelineLimits(max_call_lines=4, max_call_characters=40, max_calls=3)


class FakeBackend:
    """Answers in upper case, each call after a while of its own; counts what is under way."""

    def __init__(self, fail_on: str = "") -> None:
        self.calls: list[list[str]] = []
        self.most_at_once = 0
        self._open = 0
        self._fail_on = fail_on
        self._random = random.Random(7)

    async def list_pairs(self):
        return []

    async def translate(self, texts, options):
        self.calls.append(list(texts))
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)
        self._open -= 1
        if self._fail_on in texts:
            raise CommandError("the server is gone")
        return [Answer(text=text.upper()) for text in texts]


def lines(texts):
    return (Line(text, "\n", text) for text in texts)


async def collect(backend, source, limits=LIMITS):
    answers = []
    async for batch in translate_in_order(backend, source, Options(), limits):
        answers += [(line.text, answer.text) for line, answer in batch]
    return answers


def test_answers_come_in_the_order_of_the_lines() -> None:
    texts = [f"line {number}" for number in range(100)]

    answers = asyncio.run(collect(FakeBackend(), lines(texts)))

    assert answers == [(text, text.upper()) for text in texts]


def test_calls_stay_within_their_limits() -> None:
    backend = FakeBackend()
    texts = [f"line {number}" for number in range(100)] + ["x" * 500, "end"]

    asyncio.run(collect(backend, lines(texts)))

    assert max(map(len, backend.calls)) <= 4
    assert all(sum(map(len, call)) <= 40 or len(call) == 1 for call in backend.calls)
    assert 1 < backend.most_at_once <= 3


def test_no_lines_give_no_answers() -> None:
    assert asyncio.run(collect(FakeBackend(), lines([]))) == []


def test_a_line_is_answered_before_the_next_one_is_typed() -> None:
    answered = threading.Event()

    def typed():
        yield Line("first", "\n", "")
        assert answered.wait(10)
        yield Line("second", "\n", "")

    async def talk():
        async for batch in translate_in_order(FakeBackend(), typed(), Options(), LIMITS):
            answered.set()
            seen.extend(line.text for line, _ in batch)

    seen: list[str] = []
    asyncio.run(talk())
    assert seen == ["first", "second"]


def test_an_error_of_the_input_comes_after_the_answers_before_it() -> None:
    def broken():
        yield Line("good", "\n", "")
        raise CommandError("bad bytes", exit_code=2)

    async def read():
        with pytest.raises(CommandError, match="bad bytes"):
            async for batch in translate_in_order(FakeBackend(), broken(), Options(), LIMITS):
                seen.extend(answer.text for _, answer in batch)

    seen: list[str] = []
    asyncio.run(read())
    assert seen == ["GOOD"]


def test_a_failed_call_ends_the_run_and_leaves_nothing_behind(caplog) -> None:
    async def read():
        with pytest.raises(CommandError, match="gone"):
            await collect(
                FakeBackend(fail_on="line 9"), lines(f"line {number}" for number in range(1000))
            )
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(read())
    assert caplog.records == []
