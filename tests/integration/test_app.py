"""The life of the server: every arrow from listening to the exit code."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.dragoman.v1 import translation_pb2 as pb
from service.app import EXIT_CANNOT_START, Application, serve
from service.config import Config, MetricsConfig, ModelsConfig, ServerConfig
from service.wire import SERVICE_NAME
from tests.fake_app import Running, fake_loader, make_config, make_request, running
from tests.fakes import FakeDecoder

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 30))


async def _health(app: Running, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(app.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.005)


async def _serving(app: Running) -> None:
    async def is_serving() -> bool:
        return await _health(app, SERVICE_NAME) == SERVING

    await _until(is_serving)


def _step_gate() -> tuple[threading.Event, Callable[[FakeDecoder], None]]:
    gate = threading.Event()
    return gate, lambda decoder: gate.wait(20) and None


def test_it_lives_while_it_loads_and_serves_when_it_is_warm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_load = threading.Event()

    def slow(*arguments: Any) -> Any:
        may_load.wait(20)
        return fake_loader()(*arguments)

    async def test() -> None:
        async with running(monkeypatch, slow) as app:
            assert await _health(app, "") == SERVING
            assert await _health(app, SERVICE_NAME) == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await app.stub.TranslateText(make_request("a"))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            may_load.set()
            await _serving(app)
            answer = await app.stub.TranslateText(make_request("hello there"))
            assert answer.translations[0].translated_text == "HELLO THERE"
            assert await app.stop() == 0

    _run(test())


def test_one_screen_tells_what_is_served_where_and_how(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with running(monkeypatch) as app:
            await _serving(app)
            await app.stop()
            metrics = app.application.metrics
            assert metrics is not None
            shown = capsys.readouterr().out
            assert f"127.0.0.1:{app.application.grpc.port}" in shown
            assert f"http://127.0.0.1:{metrics.port}/metrics" in shown
            assert "en-pt 1: en to pt, float32 on cpu, 1 thread, /bundles/en-pt" in shown
            assert len(shown.splitlines()) < 10

    _run(test())


def test_the_command_to_try_is_one_that_the_shell_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "dragoman"
    command.touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))

    async def test() -> None:
        application = Application(make_config())
        monkeypatch.setenv("PATH", "")
        assert f"{command} translate --address" in application.describe()
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "try       dragoman translate --address" in application.describe()

    _run(test())


def test_the_command_that_is_told_to_try_names_a_model_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with running(monkeypatch) as app:
            await _serving(app)
            application = app.application
            assert "--model" not in application.describe()
            model = application.models[0]
            monkeypatch.setattr(application, "models", [model, model])
            name = model.bundle.manifest.name
            assert f' --model {name} "Hello, world!"' in application.describe()

    _run(test())


def test_what_nobody_expected_at_start_up_leaves_nothing_that_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*arguments: Any) -> Any:
        raise ValueError(arguments)

    async def test() -> None:
        monkeypatch.setattr("service.app.load_models", broken)
        application = Application(make_config())
        with pytest.raises(ValueError):
            await application.run()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", application.grpc.port)

    _run(test())


def test_a_standard_output_that_nobody_reads_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr("sys.stdout", full)
            async with running(monkeypatch) as app:
                await _serving(app)
                answer = await app.stub.TranslateText(make_request("hello"))
                assert answer.translations[0].translated_text == "HELLO"
                assert await app.stop() == 0

    _run(test())


def test_a_hundred_requests_in_flight_are_finished_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, before_step = _step_gate()

    async def test() -> None:
        async with running(monkeypatch, fake_loader(before_step)) as app:
            await _serving(app)
            calls = [app.stub.TranslateText(make_request(f"w{n % 9} b")) for n in range(100)]
            tasks = [asyncio.ensure_future(_answer(call)) for call in calls]
            await asyncio.sleep(0.05)
            app.application.stop()
            await asyncio.sleep(1.0)
            assert await _health(app, SERVICE_NAME) == NOT_SERVING
            assert await _health(app, "") == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await app.stub.TranslateText(make_request("late"))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            gate.set()
            texts = [
                answer.translations[0].translated_text for answer in await asyncio.gather(*tasks)
            ]
            assert texts == [f"W{n % 9} B" for n in range(100)]
            assert await app.task == 0

    _run(test())


def test_requests_that_come_right_after_the_signal_are_still_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with running(monkeypatch) as app:
            await _serving(app)
            app.application.stop()
            for _ in range(5):
                await asyncio.sleep(0.2)
                answer = await app.stub.TranslateText(make_request("one"))
                assert answer.translations[0].translated_text == "ONE"
            assert await app.task == 0

    _run(test())


async def _answer(call: Any) -> Any:
    return await call


def test_what_does_not_finish_in_time_is_cut_off_as_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow_step(_: FakeDecoder) -> None:
        threading.Event().wait(0.2)

    async def test() -> None:
        config = make_config(drain_seconds=0.1)
        async with running(monkeypatch, fake_loader(slow_step), config) as app:
            await _serving(app)
            task = asyncio.ensure_future(
                _answer(app.stub.TranslateText(make_request("a b c d e f g")))
            )
            await asyncio.sleep(0.1)
            assert await app.stop() == 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await task
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    _run(test())


def test_open_streams_and_watchers_do_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(monkeypatch) as app:
            await _serving(app)
            watch = health_pb2_grpc.HealthStub(app.channel).Watch(
                health_pb2.HealthCheckRequest(service=SERVICE_NAME)
            )
            assert (await watch.read()).status == SERVING
            stream = app.stub.StreamTranslateText()
            item = pb.StreamTranslateTextRequest(
                id="1", content="one", source_language_code="en", target_language_code="pt"
            )
            await stream.write(item)
            assert (await stream.read()).translation.translated_text == "ONE"
            began = asyncio.get_running_loop().time()
            assert await app.stop() == 0
            assert asyncio.get_running_loop().time() - began < 5
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    _run(test())


def test_a_stream_is_answered_to_the_end_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, before_step = _step_gate()

    async def test() -> None:
        async with running(monkeypatch, fake_loader(before_step)) as app:
            await _serving(app)
            stream = app.stub.StreamTranslateText()
            for number in range(5):
                await stream.write(
                    pb.StreamTranslateTextRequest(
                        id=str(number),
                        content="one",
                        source_language_code="en",
                        target_language_code="pt",
                    )
                )
            await asyncio.sleep(0.05)
            app.application.stop()
            await asyncio.sleep(0.4)
            gate.set()
            ids = {(await stream.read()).id for _ in range(5)}
            assert ids == set("01234")
            assert await app.task == 0

    _run(test())


def test_a_dead_engine_turns_health_and_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: FakeDecoder) -> None:
        raise MemoryError

    async def test() -> None:
        async with running(monkeypatch, fake_loader(die)) as app:
            await _serving(app)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await app.stub.TranslateText(make_request("a"))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await app.task == 1

    _run(test())


def test_a_stop_during_loading_ends_without_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    may_load = threading.Event()

    def slow(*arguments: Any) -> Any:
        may_load.wait(20)
        return fake_loader()(*arguments)

    async def test() -> None:
        async with running(monkeypatch, slow) as app:
            app.application.stop()
            may_load.set()
            assert await app.task == 0

    _run(test())


def test_a_name_of_which_one_address_is_taken_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            monkeypatch.setattr("service.app.load_models", fake_loader())
            config = make_config(listen=f"localhost:{taken.getsockname()[1]}")
            assert await Application(config).run() == 2
            assert capfd.readouterr().err.count("\n") == 1

    _run(test())


@pytest.mark.parametrize("kind", ["server", "metrics"])
def test_a_port_in_use_is_one_clear_message_and_exit_code_2(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            config = make_config(listen=address) if kind == "server" else _metrics_on(address)
            monkeypatch.setattr("service.app.load_models", fake_loader())
            assert await Application(config).run() == 2
            message = capsys.readouterr().err
            assert message.count("\n") == 1
            assert f"Cannot listen on {address}" in message
            assert "Address already in use" in message
            assert f"`{kind}.listen`" in message

    _run(test())


def _metrics_on(address: str) -> Config:
    return Config(server=make_config().server, metrics=MetricsConfig(listen=address))


def test_an_address_of_another_machine_is_one_clear_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        monkeypatch.setattr("service.app.load_models", fake_loader())
        assert await Application(make_config(listen="192.0.2.1:50051")).run() == 2
        message = capsys.readouterr().err
        assert "Cannot listen on 192.0.2.1:50051 (`server.listen`): Cannot assign" in message

    _run(test())


def test_two_servers_never_share_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(monkeypatch) as first:
            config = make_config(listen=f"127.0.0.1:{first.application.grpc.port}")
            assert await Application(config).run() == 2

    _run(test())


def test_a_serving_process_passes_the_interpreter_on_within_half_a_millisecond(
    tmp_path: Path,
) -> None:
    before = sys.getswitchinterval()
    config = Config(
        server=ServerConfig(listen="127.0.0.1:0"),
        metrics=MetricsConfig(listen=""),
        models=ModelsConfig(bundles=(str(tmp_path / "none"),)),
    )
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        assert serve(config) == EXIT_CANNOT_START
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    finally:
        sys.setswitchinterval(before)
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
