"""A bundle with a shortlist: verified, refused when it was touched, and served."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from export.bundle import (
    Bundle,
    BundleError,
    Manifest,
    Precision,
    describe_file,
    load_bundle,
    write_manifest,
)
from export.parity import verify
from export.shortlist import load_shortlist, save_shortlist
from service.app import create_translator
from service.config import Config, EngineConfig, MetricsConfig, ModelsConfig, ServerConfig
from service.engine import onnx_engine
from service.loading import load_models
from service.stats import NullObserver
from tests.builders import make_request

BundleMaker = Callable[[Precision], Bundle]
TEXTS = (
    "A small cat sat on the red mat.",
    "the budget",
    "The rain!",
    "would not be approved, the committee decided on tuesday, and looked at the red mat",
)


@pytest.fixture
def copy(tmp_path: Path, shortlist_bundle: BundleMaker) -> Path:
    """A bundle to change."""
    directory = tmp_path / "bundle"
    shutil.copytree(shortlist_bundle("float32").directory, directory)
    return directory


def vouch_again(directory: Path) -> None:
    """Make the manifest agree with the files as they are now."""
    manifest = read_manifest(directory)
    files = {name: describe_file(directory / name) for name in manifest.files}
    write_manifest(directory, dataclasses.replace(manifest, files=files))


def read_manifest(directory: Path) -> Manifest:
    return Manifest.from_json((directory / "manifest.json").read_text())


def config(directory: Path, *, shortlist: bool = True) -> Config:
    return Config(
        models=ModelsConfig(bundles=(str(directory),)),
        engine=EngineConfig(num_workers=2, shortlist=shortlist),
        server=ServerConfig(listen="127.0.0.1:0"),
        metrics=MetricsConfig(listen=""),
    )


def translate(directory: Path, texts: Sequence[str], *, shortlist: bool = True) -> list[str]:
    async def answer() -> list[str]:
        async with create_translator(config(directory, shortlist=shortlist)) as translator:
            request = make_request(*texts, beam_size=4, max_target_tokens=12)
            found = await translator.translate(request)
            return [each.translated_text for each in found.translations]

    return asyncio.run(asyncio.wait_for(answer(), 120))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_bundle_with_a_shortlist_has_no_fault(
    shortlist_bundle: BundleMaker, precision: Precision
) -> None:
    bundle = shortlist_bundle(precision)
    assert verify(bundle.directory, bundle.directory.parent / "checkpoint") == []


def test_a_shortlist_does_not_double_the_weights(
    shortlist_bundle: BundleMaker, random_bundle: BundleMaker
) -> None:
    sizes = [
        make("int8").manifest.files["weights.bin"].size_bytes
        for make in (shortlist_bundle, random_bundle)
    ]
    assert sizes[0] < 1.01 * sizes[1]


@pytest.mark.parametrize("name", ["shortlist.npz", "decoder.shortlist.onnx", "columns.onnx"])
def test_a_file_that_was_touched_or_lost_is_refused(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"'{name}' has SHA-256"):
        load_bundle(copy)
    (copy / name).unlink()
    with pytest.raises(BundleError, match=f"'{name}' is missing"):
        load_bundle(copy)
    manifest = read_manifest(copy)
    files = {key: entry for key, entry in manifest.files.items() if key != name}
    write_manifest(copy, dataclasses.replace(manifest, files=files))
    with pytest.raises(BundleError, match=f"`files` does not list '{name}'"):
        load_bundle(copy)


def test_the_lists_of_another_vocabulary_are_refused_by_verify_and_server(copy: Path) -> None:
    shortlist = load_shortlist(copy / "shortlist.npz")
    save_shortlist(
        copy / "shortlist.npz", dataclasses.replace(shortlist, targets=shortlist.targets[:-1])
    )
    vouch_again(copy)
    with pytest.raises(BundleError, match="must lead from 0"):
        load_models(config(copy), NullObserver())
    longer = np.append(shortlist.offsets, shortlist.offsets[-1])
    save_shortlist(copy / "shortlist.npz", dataclasses.replace(shortlist, offsets=longer))
    vouch_again(copy)
    fault = "the shortlist has 321 source words, but the tokenizer 320"
    with pytest.raises(BundleError, match=fault):
        load_models(config(copy), NullObserver())
    assert verify(copy) == [fault]


def test_a_graph_that_does_not_go_with_its_name_is_refused(copy: Path) -> None:
    shutil.copy(copy / "decoder.onnx", copy / "decoder.shortlist.onnx")
    vouch_again(copy)
    missing = "decoder.shortlist.onnx: input 'frequent_weights' is missing"
    with pytest.raises(BundleError, match=missing):
        load_models(config(copy), NullObserver())
    assert missing in verify(copy)


def test_columns_that_are_not_those_of_the_vocabulary_are_noticed(copy: Path) -> None:
    model = onnx.load(copy / "columns.onnx", load_external_data=False)
    output = model.graph.output[0].name
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name == output:
                node.output[place] = "unscaled"
    factor = onnx.numpy_helper.from_array(np.float32(1.5), "factor")
    model.graph.initializer.append(factor)
    model.graph.node.append(helper.make_node("Mul", ["unscaled", "factor"], [output]))
    onnx.save(model, copy / "columns.onnx")
    vouch_again(copy)
    assert verify(copy) == [
        "the shortlist's decoder with all words gives other log-probabilities than the decoder"
    ]


def test_a_server_uses_the_shortlist_unless_it_is_told_not_to(
    shortlist_bundle: BundleMaker, random_bundle: BundleMaker
) -> None:
    directory = shortlist_bundle("int8").directory
    with_lists = translate(directory, TEXTS)
    without = translate(directory, TEXTS, shortlist=False)
    assert with_lists != without
    assert without == translate(random_bundle("int8").directory, TEXTS)
    assert with_lists == [translate(directory, [text])[0] for text in TEXTS]


def test_where_int8_products_saturate_the_shortlist_is_left_out(
    shortlist_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_engine, "int8_saturates", lambda: True)
    assert onnx_engine.load_onnx_engine(shortlist_bundle("int8")).shortlist is None
    assert onnx_engine.load_onnx_engine(shortlist_bundle("float32")).shortlist is not None
