"""Texts in, texts out: order, whitespace and neighbours survive whatever happens to one text."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from export.bundle import Limits
from service.errors import (
    DeadlineError,
    EngineDeadError,
    EngineStepError,
    OverloadedError,
    SourceTooLongError,
)
from service.request import Translation, ValidRequest
from service.translator import Translator
from tests.builders import make_valid_request
from tests.fake_core import FakeCore, FakeTokenizer, make_served_model

T = TypeVar("T")


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 10))


def _translate(
    request: ValidRequest, core: FakeCore | None = None, **manifest: object
) -> list[Translation]:
    translator = Translator([make_served_model(core, **manifest)])
    try:
        return _run(translator.translate(request))
    finally:
        translator.close()


def _texts(*contents: str, **options: object) -> list[str]:
    return [each.translated_text for each in _translate(make_valid_request(*contents, **options))]


def test_order_and_count_of_texts_are_kept() -> None:
    assert _texts("one", "two. three.", "four") == ["ONE", "TWO. THREE.", "FOUR"]


def test_no_texts_get_no_answers() -> None:
    assert _texts() == []


def test_empty_and_blank_texts_come_back_as_they_are() -> None:
    assert _texts("foo", "", "bar", "   ", "\n\n", "...") == [
        "FOO",
        "",
        "BAR",
        "   ",
        "\n\n",
        "...",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "  Hello\n\n  World \r\n",
        "It rains.  Go!\t\tc?\n\n\n- d\u2028e\x00f",
        "\ufeff Hi.\u3000Ho.\u00a0",
    ],
)
def test_whitespace_and_lines_survive_byte_for_byte(text: str) -> None:
    assert _texts(text) == [text.upper()]


def test_a_sentence_of_two_thousand_words_is_translated_whole() -> None:
    text = " ".join(f"word{index}" for index in range(2000))
    (translation,) = _translate(make_valid_request(text))
    assert translation.translated_text == text.upper()
    assert len(translation.segments) >= 2000 // 63
    assert not translation.truncated


def test_sequences_carry_ids_options_and_their_own_limit() -> None:
    core = FakeCore()
    request = make_valid_request("We see it. Go on.", "e", deadline=5.0, request_id="r")
    _translate(request, core, limits=Limits(max_source_tokens=64, max_target_tokens=128))
    lengths = [(len(sequence.source_ids), sequence.max_length) for sequence in core.taken]
    assert lengths == [(4, 18), (3, 16), (2, 14)]
    assert len({sequence.sequence_id for sequence in core.taken}) == 3
    assert {(s.request_id, s.deadline) for s in core.taken} == {("r", 5.0)}
    assert {s.options for s in core.taken} == {request.options}


def test_the_limit_of_the_request_caps_that_of_the_sentence() -> None:
    core = FakeCore()
    (translation,) = _translate(make_valid_request("a b c d e", max_target_tokens=3), core)
    assert core.taken[0].max_length == 3
    assert translation.truncated
    assert translation.translated_text == "A B C"


def test_alternatives_and_scores_are_told_when_asked_for() -> None:
    request = make_valid_request("one two. three four.", num_hypotheses=2, return_scores=True)
    (translation,) = _translate(request)
    assert translation.translated_text == "ONE TWO. THREE FOUR."
    assert translation.alternatives == ("TWO. FOUR.",)
    assert translation.score == -0.5
    assert translation.alternative_scores == (-1.5,)


def test_a_text_that_failed_does_not_fail_its_neighbours() -> None:
    core = FakeCore()
    poison = EngineStepError("One step failed.")
    core.fail = lambda sequence: poison if len(sequence.source_ids) == 4 else None
    answers = _translate(make_valid_request("one", "Go on. One two three.", "two"), core)
    assert [answer.translated_text for answer in answers] == ["ONE", "", "TWO"]
    assert [answer.error for answer in answers] == [None, poison, None]


def test_a_text_that_validation_refused_is_not_translated() -> None:
    error = SourceTooLongError("too long")
    core = FakeCore()
    answers = _translate(make_valid_request("a", "b", item_errors={1: error}), core)
    assert [answer.translated_text for answer in answers] == ["A", ""]
    assert answers[1].error is error
    assert len(core.taken) == 1


def test_a_text_of_too_many_sentences_fails_alone() -> None:
    translator = Translator([make_served_model()], max_text_segments=3)
    answers = _run(translator.translate(make_valid_request("a\nb\nc", "a\nb\nc\nd", "e")))
    translator.close()
    assert [answer.translated_text for answer in answers] == ["A\nB\nC", "", "E"]
    assert str(answers[1].error) == "A text must have at most 3 sentences, but this one has 4."


def test_what_the_core_refuses_fails_the_call() -> None:
    core = FakeCore()
    core.refuse = OverloadedError("The queue is full.")
    with pytest.raises(OverloadedError):
        _translate(make_valid_request("a"), core)


@pytest.mark.parametrize("error", [DeadlineError("late"), EngineDeadError("dead")])
def test_an_expired_request_or_a_dead_engine_fails_the_call_and_aborts_the_rest(
    error: Exception,
) -> None:
    core = FakeCore()
    core.fail = lambda sequence: error  # type: ignore[assignment,return-value]
    with pytest.raises(type(error)):
        _translate(make_valid_request("a", "b", "c"), core)
    assert len(core.aborted) == 2


def test_cancelling_aborts_what_is_left() -> None:
    async def cancel_soon() -> FakeCore:
        core = FakeCore()
        core.hold = asyncio.Event()
        translator = Translator([make_served_model(core)])
        task = asyncio.ensure_future(translator.translate(make_valid_request("a", "b")))
        while not core.taken:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        translator.close()
        return core

    core = _run(cancel_soon())
    assert core.aborted == [sequence.sequence_id for sequence in core.taken]


def test_requests_go_to_the_model_that_they_name() -> None:
    async def ask_both() -> tuple[int, int]:
        first, second = FakeCore(), FakeCore()
        translator = Translator(
            [
                make_served_model(first),
                make_served_model(second, name="pt-en", source_language="pt"),
            ]
        )
        await translator.translate(make_valid_request("a", model="pt-en"))
        translator.close()
        return len(first.taken), len(second.taken)

    assert _run(ask_both()) == (0, 1)


class _WatchedTokenizer(FakeTokenizer):
    """Remembers in which threads it works."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def encode_source_batch(self, texts: Sequence[str]) -> list[list[int]]:
        self.threads.add(threading.current_thread().name)
        return super().encode_source_batch(texts)

    def decode_target(self, token_ids: Sequence[int]) -> str:
        self.threads.add(threading.current_thread().name)
        return super().decode_target(token_ids)


@pytest.mark.parametrize(
    ("texts", "in_pool"), [(["a b c", "d"], False), (["x" * 400, "y " * 200], True)]
)
def test_only_short_texts_are_worked_on_in_the_event_loop(texts: list[str], in_pool: bool) -> None:
    tokenizer = _WatchedTokenizer()
    model = dataclasses.replace(make_served_model(), tokenizer=tokenizer)
    translator = Translator([model])
    _run(translator.translate(make_valid_request(*texts)))
    translator.close()
    assert {name.startswith("text") for name in tokenizer.threads} == {in_pool}
