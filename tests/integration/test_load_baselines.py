"""What Dragoman is compared with under load gives the same answers: the same work is done by all."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.batcher_server import Front, create_batcher
from benchmarks.caller import decode_call, encode_call, open_caller
from benchmarks.contenders import BATCHER, CTRANSLATE2, DRAGOMAN
from benchmarks.ctranslate2_batches import CTranslate2Batches
from benchmarks.ctranslate2_model import save_ctranslate2_model
from benchmarks.dragoman_batches import DragomanBatches
from benchmarks.engine_alone import run_engine_alone
from benchmarks.load import LoadPlan, measure_plan
from benchmarks.load_open import OpenLoad
from benchmarks.request_batcher import BatchTranslator
from benchmarks.sentences import create_sentences, keep_single_sentences
from benchmarks.stand import Stand
from export.bundle import Bundle, Precision
from model.checkpoint import load_model
from model.tokenizer import Tokenizer
from service.config import Config, MetricsConfig, ModelsConfig, SchedulerConfig, ServerConfig
from service.engine.onnx_engine import load_onnx_engine
from service.request import DecodingOptions, Hypothesis, SequenceResult
from service.request import Sequence as Sentence
from tests.fake_app import run_application

MakeBundle = Callable[[Precision], Bundle]
TEXTS = (
    "a small cat sat on the red mat",
    "the rain",
    "the committee decided on tuesday that the budget would not be approved",
    "looked at the rain and the mat and the cat",
    "no",
    "One cat. Two cats.",
)


@pytest.fixture(scope="module")
def ctranslate2_model(random_bundle: MakeBundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = random_bundle("float32")
    directory = tmp_path_factory.mktemp("ctranslate2") / "model"
    transformer = load_model(bundle.directory.parent / "checkpoint")
    special = bundle.manifest.special_tokens
    assert special.bos_id is not None
    with torch.no_grad():  # our graphs never give these, CTranslate2 has to be told
        transformer.output_projection.bias[[special.bos_id, special.pad_id]] = -1e9
    save_ctranslate2_model(transformer, directory, special.unk_id)
    return directory


def _tokenizer(bundle: Bundle) -> Tokenizer:
    return Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)


def _options(**options: object) -> argparse.Namespace:
    known = {
        "ctranslate2_model": None,
        "max_batch_sentences": 4,
        "max_delay_seconds": 0.005,
        "answers_early": False,
    }
    return argparse.Namespace(**{**known, **options})


async def _ask_all(address: str, bundle: Bundle) -> list[str]:
    """The texts in calls of their own at once, and then in one call."""
    async with open_caller(address, 3) as caller:
        calls = [encode_call([text], bundle.manifest) for text in TEXTS]
        answers = await asyncio.gather(
            *(caller.call(number, call) for number, call in enumerate(calls))
        )
        document = await caller.call(0, encode_call(TEXTS, bundle.manifest))
    return [*(text for answer in answers for text in decode_call(answer)), *decode_call(document)]


async def _ask_dragoman(bundle: Bundle) -> list[str]:
    config = Config(
        models=ModelsConfig(bundles=(str(bundle.directory),)),
        server=ServerConfig(listen="127.0.0.1:0"),
        metrics=MetricsConfig(listen=""),
    )
    async with run_application(config) as app:
        while not app.application.models:
            await asyncio.sleep(0.02)
        return await _ask_all(f"127.0.0.1:{app.application.grpc.port}", bundle)


async def _ask_batcher(bundle: Bundle, options: argparse.Namespace) -> list[str]:
    config = Config(server=ServerConfig(listen="127.0.0.1:0"), metrics=MetricsConfig(listen=""))
    batcher = create_batcher(bundle, _tokenizer(bundle), config, options)
    front = Front(config, bundle, _tokenizer(bundle), batcher)
    await front.start()
    try:
        return await _ask_all(f"127.0.0.1:{front.port}", bundle)
    finally:
        await front.stop()
        batcher.close()


@pytest.mark.parametrize("answers_early", [False, True])
def test_the_batcher_on_our_engine_gives_the_answers_of_dragoman(
    random_bundle: MakeBundle, answers_early: bool
) -> None:
    bundle = random_bundle("float32")

    async def test() -> None:
        expected = await _ask_dragoman(bundle)
        assert await _ask_batcher(bundle, _options(answers_early=answers_early)) == expected
        assert expected[: len(TEXTS)] == expected[len(TEXTS) :]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_the_batcher_on_ctranslate2_answers_every_text(
    random_bundle: MakeBundle, ctranslate2_model: Path
) -> None:
    async def test() -> None:
        options = _options(ctranslate2_model=ctranslate2_model)
        answers = await _ask_batcher(random_bundle("float32"), options)
        assert len(answers) == 2 * len(TEXTS)
        assert all(answers)

    asyncio.run(asyncio.wait_for(test(), 60))


def _targets(translator: BatchTranslator, sentences: Sequence[Sentence]) -> dict[int, Hypothesis]:
    found: list[SequenceResult] = []
    for sentence in sentences:  # alone: CTranslate2 has one limit of length for a batch
        translator.translate([sentence], found.extend)
    return {result.sequence_id: result.hypotheses[0] for result in found}


def test_ctranslate2_finds_the_tokens_that_our_engine_finds(
    random_bundle: MakeBundle, ctranslate2_model: Path
) -> None:
    bundle = random_bundle("float32")
    greedy = [
        dataclasses.replace(each, options=DecodingOptions(beam_size=1))
        for each in create_sentences(TEXTS[:5], bundle.manifest, _tokenizer(bundle))
    ]
    ours = _targets(DragomanBatches(load_onnx_engine(bundle), SchedulerConfig()), greedy)
    theirs = _targets(
        CTranslate2Batches(ctranslate2_model, compute_type="float32", threads=(1, 1)), greedy
    )
    assert {number: each.token_ids for number, each in theirs.items()} == {
        number: each.token_ids for number, each in ours.items()
    }
    assert len(set(ours.values())) == len(greedy)


def test_texts_that_the_server_would_cut_are_left_out(random_bundle: MakeBundle) -> None:
    bundle = random_bundle("float32")
    texts = [*TEXTS, "mat " * 1000]
    assert keep_single_sentences(texts, bundle.manifest, _tokenizer(bundle)) == list(TEXTS[:5])


def test_the_engine_alone_translates_until_the_time_is_over(random_bundle: MakeBundle) -> None:
    bundle = random_bundle("float32")
    sentences = create_sentences(TEXTS[:5], bundle.manifest, _tokenizer(bundle))
    run = run_engine_alone(
        load_onnx_engine(bundle),
        sentences,
        num_workers=2,
        num_outstanding=6,
        warm_seconds=0.1,
        seconds=0.5,
    )
    assert run.num_sentences >= 6
    assert 0 < run.throughput <= run.num_sentences / 0.5


@pytest.mark.slow
def test_three_servers_stand_a_short_load(tmp_path: Path) -> None:
    plan = LoadPlan(
        warm_seconds=0.5,
        closed_seconds=1.0,
        efficiency_slices=1,
        slice_seconds=2.0,
        capacity_slices=1,
        open_loads=(OpenLoad(share=0.7, num_slices=2, slice_seconds=3.0),),
    )
    result = measure_plan(Stand(tmp_path), plan)
    assert {"grpc.efficiency", "load.p99", "load.p99.ctranslate2"} <= set(result.ratios)
    assert all(value > 0 for value in result.ratios.values())
    assert set(result.samples["load.128 clients"]) == {DRAGOMAN, BATCHER, CTRANSLATE2}
    singles = result.samples["load.70%.singles"]
    counts = {len(seconds) for seconds in singles.values()}
    assert len(counts) == 1  # the same calls to each
    assert any(" 0 failed" in note for note in result.notes)
