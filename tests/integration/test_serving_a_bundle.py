"""From a bundle on disk to answers over gRPC, with nothing faked."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from export.bundle import Bundle, BundleError, Precision, describe_file, write_manifest
from protos.dragoman.v1 import translation_pb2 as pb
from service.app import create_translator
from service.config import Config, EngineConfig, MetricsConfig, ModelsConfig, ServerConfig
from service.loading import load_models
from service.stats import NullObserver
from service.wire import SERVICE_NAME
from tests.builders import make_request as make_local_request
from tests.fake_app import Running, run_application

MakeBundle = Callable[[Precision], Bundle]
SHORT = {"beam_size": 2, "max_target_tokens": 12}  # a random model never ends by itself
TEXTS = (
    "A small cat sat on the red mat.",
    "",
    "  The rain!\n\n\tDid the committee decide?  Yes, on tuesday.\r\n",
    "word " * 400,
    "x" * 300,
    "...",
    "東京 is big",
)


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


def _config(*directories: Path, **engine: Any) -> Config:
    return Config(
        models=ModelsConfig(bundles=tuple(map(str, directories))),
        engine=EngineConfig(**{"num_workers": 2, **engine}),
        server=ServerConfig(listen="127.0.0.1:0"),
        metrics=MetricsConfig(listen="127.0.0.1:0"),
    )


def _request(*contents: str, **options: Any) -> pb.TranslateTextRequest:
    return pb.TranslateTextRequest(
        contents=contents,
        source_language_code="en",
        target_language_code="pt",
        options=pb.TranslationOptions(**options),
    )


async def _serving(app: Running) -> None:
    health = health_pb2_grpc.HealthStub(app.channel)
    request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
    while (await health.Check(request)).status != health_pb2.HealthCheckResponse.SERVING:
        await asyncio.sleep(0.02)


def _scrape(app: Running, name: str) -> float:
    metrics = app.application.metrics
    assert metrics is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(name + "{")]
    return float(line.split()[-1])


def test_a_text_gets_the_same_answer_alone_in_a_call_in_a_stream_and_without_a_server(
    random_bundle: MakeBundle,
) -> None:
    config = _config(random_bundle("int8").directory)

    async def test() -> None:
        async with run_application(config) as app:
            await _serving(app)
            together = await app.stub.TranslateText(_request(*TEXTS, **SHORT))
            expected = [each.translated_text for each in together.translations]
            alone = [await app.stub.TranslateText(_request(text, **SHORT)) for text in TEXTS]
            assert [each.translations[0].translated_text for each in alone] == expected
            items = [
                pb.StreamTranslateTextRequest(
                    id=str(place),
                    content=text,
                    source_language_code="en",
                    target_language_code="pt",
                    options=pb.TranslationOptions(**SHORT),
                )
                for place, text in enumerate(TEXTS)
            ]
            stream = app.stub.StreamTranslateText(iter(items))
            streamed = {each.id: each.translation.translated_text async for each in stream}
            assert [streamed[str(place)] for place in range(len(TEXTS))] == expected
        async with create_translator(config) as translator:
            answer = await translator.translate(make_local_request(*TEXTS, **SHORT))
            assert [each.translated_text for each in answer.translations] == expected

    _run(test())


def test_a_graph_that_does_not_go_with_its_manifest_is_refused(
    random_bundle: MakeBundle, tmp_path: Path
) -> None:
    directory = tmp_path / "bundle"
    shutil.copytree(random_bundle("float32").directory, directory)
    shutil.copy(directory / "encoder.onnx", directory / "decoder.onnx")
    manifest = random_bundle("float32").manifest
    files = {**manifest.files, "decoder.onnx": describe_file(directory / "decoder.onnx")}
    write_manifest(directory, dataclasses.replace(manifest, files=files))
    with pytest.raises(BundleError, match=r"decoder\.onnx: input 'past_lengths' is missing"):
        load_models(_config(directory), NullObserver())


def test_line_structure_survives_whatever_the_model_says(random_bundle: MakeBundle) -> None:
    async def test() -> None:
        async with run_application(_config(random_bundle("float32").directory)) as app:
            await _serving(app)
            answer = await app.stub.TranslateText(_request(*TEXTS, **SHORT))
            blank, lines = answer.translations[1], answer.translations[2]
            assert (blank.translated_text, len(blank.segments)) == ("", 0)
            text, source = lines.translated_text, TEXTS[2]
            source_end = target_end = 0
            for segment in lines.segments:
                gap = source[source_end : segment.source_span.start]
                assert text[target_end : segment.target_span.start] == gap
                source_end, target_end = segment.source_span.end, segment.target_span.end
            assert text[target_end:] == source[source_end:] == "\r\n"
            assert len(lines.segments) == 3
            assert answer.translations[5].translated_text == "..."

    _run(test())


def test_clients_that_leave_free_everything(random_bundle: MakeBundle) -> None:
    async def test() -> None:
        async with run_application(_config(random_bundle("int8").directory)) as app:
            await _serving(app)
            calls = [app.stub.TranslateText(_request(*["a cat sat " * 20] * 8)) for _ in range(16)]
            await asyncio.sleep(0.1)
            for call in calls:
                call.cancel()
            stream = app.stub.StreamTranslateText()
            await stream.write(
                pb.StreamTranslateTextRequest(
                    id="1",
                    content="a cat " * 30,
                    source_language_code="en",
                    target_language_code="pt",
                )
            )
            stream.cancel()
            with pytest.raises(grpc.aio.AioRpcError):
                await app.stub.TranslateText(_request(*["the rain " * 50] * 50), timeout=0.1)
            held = ["queue_depth", "running_sequences", "running_rows", "kv_cache_bytes"]
            while any(_scrape(app, f"dragoman_{name}") for name in held):
                await asyncio.sleep(0.05)
            answer = await app.stub.TranslateText(_request("a cat"))
            assert answer.translations[0].translated_text

    _run(test())


def test_the_embedded_models_are_served_without_arguments_and_translate_fluently() -> None:
    async def test() -> None:
        async with run_application(_config()) as app:
            await _serving(app)
            text = "The committee decided on Tuesday that the budget would not be approved."
            answer = await app.stub.TranslateText(_request(text, return_scores=True))
            (translation,) = answer.translations
            for word in ("decidiu", "terça-feira", "orçamento", "não seria aprovado"):
                assert word in translation.translated_text
            assert -1 < translation.score < 0
            assert not translation.truncated

    _run(test())
