"""The whole application on a scripted engine, without a bundle. `python -m tests.fake_app` serves it in a process."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

import service.app
from export.bundle import Bundle
from protos.dragoman.v1 import translation_pb2 as pb
from protos.dragoman.v1 import translation_pb2_grpc
from service.app import Application
from service.config import Config, MetricsConfig, ServerConfig
from service.core import EngineCore
from service.engine_workers import EngineThreads
from service.errors import EngineDeadError
from service.loading import LoadedModel
from service.request_lines import RequestLines
from service.stats import Observer
from service.translator import ServedModel
from tests.builders import make_manifest
from tests.fake_core import FakeTokenizer
from tests.fakes import FakeDecoder, FakeEngine, copy_script

_REPOSITORY = Path(__file__).parents[1]
VOCAB_SIZE = 64
Loader = Callable[[Config, Observer, Callable[[EngineDeadError], None] | None], list[LoadedModel]]


def fake_loader(before_step: Callable[[FakeDecoder], None] = lambda decoder: None) -> Loader:
    """Stands for `load_models`: one model, whose translation is its source in capitals."""

    def load(
        config: Config,
        observer: Observer,
        on_death: Callable[[EngineDeadError], None] | None = None,
    ) -> list[LoadedModel]:
        manifest = make_manifest()
        engine = FakeEngine(copy_script(VOCAB_SIZE), vocab_size=VOCAB_SIZE, before_step=before_step)
        core = EngineCore(
            name=manifest.name,
            workers=EngineThreads(
                model=manifest.name, engine=engine, config=config.scheduler, num_workers=1
            ),
            config=config.scheduler,
            observer=observer,
            on_death=on_death,
        )
        return [
            LoadedModel(
                bundle=Bundle(directory=Path("/bundles/en-pt"), manifest=manifest),
                served=ServedModel(manifest=manifest, tokenizer=FakeTokenizer(), core=core),
                core=core,
                provider="cpu",
                num_workers=1,
            )
        ]

    return load


def make_config(**server: Any) -> Config:
    """Everything on free ports."""
    return Config(
        server=ServerConfig(**{"listen": "127.0.0.1:0", **server}),
        metrics=MetricsConfig(listen="127.0.0.1:0"),
    )


@dataclass(slots=True)
class Running:
    """An application that runs, and a client of it."""

    application: Application
    task: asyncio.Task[int]
    channel: grpc.aio.Channel
    stub: Any

    async def stop(self) -> int:
        """Shut down and give the exit code."""
        self.application.stop()
        return await self.task


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch,
    loader: Loader | None = None,
    config: Config | None = None,
    lines: RequestLines | None = None,
) -> AsyncIterator[Running]:
    """Run the application on a scripted engine; begin as soon as it listens."""
    monkeypatch.setattr(service.app, "load_models", loader or fake_loader())
    async with run_application(config or make_config(), lines) as running_application:
        yield running_application


@asynccontextmanager
async def run_application(
    config: Config, lines: RequestLines | None = None
) -> AsyncIterator[Running]:
    """Run the application as it is; begin as soon as it listens."""
    application = Application(config, lines)
    task = asyncio.create_task(application.run())
    while not application.grpc.port:
        await asyncio.sleep(0.002)
        assert not task.done(), "the application does not start"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{application.grpc.port}") as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        yield Running(application, task, channel, stub)
        if not task.done():
            application.stop()
        await task


def make_request(*contents: str) -> pb.TranslateTextRequest:
    """English to Portuguese, greedy."""
    return pb.TranslateTextRequest(
        contents=contents,
        source_language_code="en",
        target_language_code="pt",
        options=pb.TranslationOptions(beam_size=1),
    )


@contextmanager
def fake_server(seconds_for_a_step: float) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A process that serves a scripted engine, its address, and the URL of its metrics."""
    command = [sys.executable, "-m", "tests.fake_app", str(seconds_for_a_step)]
    with subprocess.Popen(
        command, cwd=_REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = ""
            for line in process.stdout:
                match = re.search(r"gRPC +(\S+)", line)
                address = match[1] if match else address
                match = re.search(r"metrics +(\S+)", line)
                if match:
                    break
            else:
                raise AssertionError(process.stderr.read() if process.stderr else "")
            yield process, address, match[1]
        finally:
            process.kill()


def _serve_slowly(seconds_for_a_step: float) -> int:
    def before_step(_: FakeDecoder) -> None:
        time.sleep(seconds_for_a_step)

    service.app.load_models = fake_loader(before_step)  # type: ignore[assignment]
    return service.app.serve(make_config(drain_seconds=60))


if __name__ == "__main__":
    sys.exit(_serve_slowly(float(sys.argv[1])))
