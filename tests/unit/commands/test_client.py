import asyncio
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import pytest
from google.rpc import code_pb2

from commands.backend import Answer, Options, Pair
from commands.client import Client
from commands.errors import CommandError
from protos.dragoman.v1 import translation_pb2 as pb
from protos.dragoman.v1 import translation_pb2_grpc


class FakeServer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers in upper case after a given number of refusals."""

    def __init__(self) -> None:
        self.requests = []
        self.refusals = []

    async def ListModels(self, request, context):  # noqa: N802
        model = pb.Model(name="en-pt", source_language_code="en", target_language_code="pt")
        return pb.ListModelsResponse(models=[model])

    async def TranslateText(self, request, context):  # noqa: N802
        self.requests.append(request)
        if self.refusals:
            code, metadata = self.refusals.pop(0)
            await context.abort(code, "not now", trailing_metadata=metadata)
        return pb.TranslateTextResponse(
            translations=[self._answer(text) for text in request.contents]
        )

    def _answer(self, text):
        answer = pb.Translation(translated_text=text.upper(), truncated=text == "long")
        answer.alternatives.add(translated_text=text.title())
        if text == "bad":
            answer.Clear()
            answer.status.code = code_pb2.INVALID_ARGUMENT
            answer.status.message = "too long"
        return answer


def talk(server: FakeServer, conversation: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        host = grpc.aio.server()
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(server, host)
        port = host.add_insecure_port("127.0.0.1:0")
        await host.start()
        async with Client(f"127.0.0.1:{port}") as client:
            await conversation(client)
        await host.stop(0)

    asyncio.run(run())


def test_answers_are_taken_over_with_their_faults() -> None:
    async def conversation(client: Client) -> None:
        answers = await client.translate(["long", "bad"], Options())
        assert answers[0] == Answer(text="LONG", alternatives=("Long",), truncated=True)
        assert answers[1] == Answer(text="", error="too long")
        assert await client.list_pairs() == [Pair("en-pt", "en", "pt")]

    talk(FakeServer(), conversation)


def test_options_that_were_not_given_stay_unset() -> None:
    server = FakeServer()

    async def conversation(client: Client) -> None:
        await client.translate(["x"], Options(source_language="en", length_penalty=0.0))

    talk(server, conversation)
    assert server.requests[0].source_language_code == "en"
    assert server.requests[0].options.HasField("length_penalty")
    assert not server.requests[0].options.HasField("beam_size")


def test_a_full_queue_is_waited_for() -> None:
    server = FakeServer()
    server.refusals = [(grpc.StatusCode.RESOURCE_EXHAUSTED, (("retry-after", "0.01"),))] * 3

    async def conversation(client: Client) -> None:
        assert [answer.text for answer in await client.translate(["x"], Options())] == ["X"]

    talk(server, conversation)
    assert len(server.requests) == 4


def test_a_message_that_is_too_big_is_not_sent_again() -> None:
    server = FakeServer()
    server.refusals = [(grpc.StatusCode.RESOURCE_EXHAUSTED, ())]

    async def conversation(client: Client) -> None:
        with pytest.raises(CommandError, match="RESOURCE_EXHAUSTED: not now"):
            await client.translate(["x", "y"], Options())

    talk(server, conversation)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(grpc.StatusCode.INVALID_ARGUMENT, 2), (grpc.StatusCode.INTERNAL, 1)],
)
def test_the_users_faults_are_told_from_the_servers(code, exit_code) -> None:
    server = FakeServer()
    server.refusals = [(code, ())]

    async def conversation(client: Client) -> None:
        with pytest.raises(CommandError, match=f"{code.name}: not now") as info:
            await client.translate(["x"], Options())
        assert info.value.exit_code == exit_code

    talk(server, conversation)


def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    async def ask() -> None:
        async with Client("127.0.0.1:1") as client:
            await client.list_pairs()

    with pytest.raises(CommandError, match=r"no server answers at 127\.0\.0\.1:1"):
        asyncio.run(ask())


def test_a_text_that_is_too_big_fails_alone() -> None:
    async def conversation(client: Client) -> None:
        (answer,) = await client.translate(["x"], Options())
        assert "RESOURCE_EXHAUSTED: not now" in answer.error

    server = FakeServer()
    server.refusals = [(grpc.StatusCode.RESOURCE_EXHAUSTED, ())]
    talk(server, conversation)


def test_an_option_that_no_message_holds_is_wrong_usage() -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(CommandError, match="out of range") as info:
            await client.translate(["a"], Options(beam_size=2**40))
        assert info.value.exit_code == 2

    talk(FakeServer(), conversation)


def test_an_empty_address_is_wrong_usage() -> None:
    with pytest.raises(CommandError, match="--address must be HOST:PORT"):
        Client("")
