"""StreamTranslateText on a real server: each text is answered under its id, and one fault stays with its text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from google.rpc import code_pb2

from protos.dragoman.v1 import translation_pb2 as pb
from service.config import ServerConfig
from service.errors import (
    EngineStepError,
)
from tests.fake_core import FakeCore
from tests.grpc_serving import (
    Serving,
    collect,
    make_item,
    with_server,
)


def test_a_stream_answers_each_text_under_its_id() -> None:
    async def test(server: Serving) -> None:
        items = [make_item(str(number), f"text {number}") for number in range(200)]
        responses = await collect(server.stub.StreamTranslateText(iter(items)))
        texts = {each.id: each.translation.translated_text for each in responses}
        assert texts == {str(number): f"TEXT {number}" for number in range(200)}
        assert len(responses) == 200
        assert {each.model for each in responses} == {"en-pt"}

    with_server(test)


def test_an_empty_stream_ends_at_once() -> None:
    async def test(server: Serving) -> None:
        assert await collect(server.stub.StreamTranslateText(iter([]))) == []

    with_server(test)


def test_a_stream_answers_before_its_client_has_said_everything() -> None:
    async def test(server: Serving) -> None:
        call = server.stub.StreamTranslateText()
        for number in range(3):
            await call.write(make_item(str(number), "one"))
            response = await call.read()
            assert response.id == str(number)
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF

    with_server(test)


def test_one_bad_item_of_a_stream_fails_alone() -> None:
    core = FakeCore()
    core.fail = lambda each: (
        EngineStepError("A step failed.") if len(each.source_ids) == 4 else None
    )

    async def test(server: Serving) -> None:
        items = [
            make_item("good", "one"),
            make_item("language", "one", source_language_code="xx"),
            make_item("model", "one", model="none"),
            make_item("beam", "one", options=pb.TranslationOptions(beam_size=99)),
            make_item("long", "x" * 200_000),
            make_item("step", "one two three"),
            make_item("", "no id"),
            make_item("x" * 129, "long id"),
            make_item("blank", "  "),
        ]
        responses = await collect(server.stub.StreamTranslateText(iter(items)))
        codes = {each.id: each.translation.status.code for each in responses}
        assert codes == {
            "good": code_pb2.OK,
            "language": code_pb2.INVALID_ARGUMENT,
            "model": code_pb2.NOT_FOUND,
            "beam": code_pb2.INVALID_ARGUMENT,
            "long": code_pb2.INVALID_ARGUMENT,
            "step": code_pb2.INTERNAL,
            "": code_pb2.INVALID_ARGUMENT,
            "x" * 129: code_pb2.INVALID_ARGUMENT,
            "blank": code_pb2.OK,
        }

    with_server(test, core)


def test_an_id_may_not_be_that_of_an_unanswered_text_but_may_be_used_again() -> None:
    core = FakeCore()
    core.hold = asyncio.Event()

    async def test(server: Serving) -> None:
        call = server.stub.StreamTranslateText()
        await call.write(make_item("same", "one"))
        await call.write(make_item("same", "two"))
        refused = await call.read()
        assert refused.translation.status.code == code_pb2.INVALID_ARGUMENT
        assert core.hold is not None
        core.hold.set()
        assert (await call.read()).translation.translated_text == "ONE"
        await call.write(make_item("same", "three"))
        assert (await call.read()).translation.translated_text == "THREE"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF

    with_server(test, core)


def test_a_stream_is_read_only_while_few_texts_are_unanswered() -> None:
    core = FakeCore()
    core.hold = asyncio.Event()

    async def test(server: Serving) -> None:
        async def items() -> AsyncIterator[pb.StreamTranslateTextRequest]:
            for number in range(40):
                yield make_item(str(number), "one")

        call = server.stub.StreamTranslateText(items())
        task = asyncio.ensure_future(collect(call))
        while len(core.taken) < 8:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert len(core.taken) == 8
        assert core.hold is not None
        core.hold.set()
        assert len(await task) == 40

    with_server(test, core, config=ServerConfig(listen="127.0.0.1:0", max_stream_items=8))


def test_cancelling_a_stream_stops_all_its_work() -> None:
    core = FakeCore()
    core.hold = asyncio.Event()

    async def test(server: Serving) -> None:
        call = server.stub.StreamTranslateText()
        for number in range(5):
            await call.write(make_item(str(number), "one"))
        while len(core.taken) < 5:
            await asyncio.sleep(0.005)
        call.cancel()
        while len(core.aborted) < 5:
            await asyncio.sleep(0.005)

    with_server(test, core)
