"""Which bundles are loaded, and what is said of those that cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from export.bundle import BundleError, describe_file, load_bundle, write_manifest
from model.tokenizer import Tokenizer, train_tokenizer
from service import loading
from service.config import Config, EngineConfig, ModelsConfig
from service.engine.threads import available_cores
from service.errors import ConfigError
from service.loading import embedded_bundles, find_bundles, load_models
from service.stats import NullObserver
from tests.builders import make_manifest

SENTENCES = (
    "the committee decided on tuesday",
    "a small cat sat on the red mat and looked at the rain",
)


def _bundle(directory: Path, **files: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        "encoder.onnx": b"no graph",
        "decoder.onnx": b"no graph",
        "tokenizer.spm": b"",
        **files,
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    entries = {path.name: describe_file(path) for path in directory.iterdir()}
    write_manifest(directory, make_manifest(files=entries))
    return directory


def _with_vocabulary(directory: Path) -> Path:
    """Make a bundle whose vocabulary is as its manifest says."""
    model = train_tokenizer(SENTENCES, vocab_size=280)
    tokenizer = Tokenizer(model)
    _bundle(directory, **{"tokenizer.spm": model})
    manifest = load_bundle(directory).manifest
    write_manifest(
        directory,
        dataclasses.replace(
            manifest,
            architecture=dataclasses.replace(
                manifest.architecture, vocab_size=tokenizer.vocab_size
            ),
            special_tokens=dataclasses.replace(
                manifest.special_tokens, eos_id=tokenizer.eos_id, unk_id=tokenizer.unk_id
            ),
        ),
    )
    return directory


def _load(*directories: Path) -> None:
    load_models(Config(models=ModelsConfig(bundles=tuple(map(str, directories)))), NullObserver())


def test_named_bundles_are_loaded_in_their_order() -> None:
    assert find_bundles(["/b", "/a"]) == [Path("/b"), Path("/a")]


def test_without_names_every_bundle_that_came_with_the_program_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "model"
    _bundle(package / "pretrained/en-pt")
    _bundle(package / "pretrained/de-en")
    (package / "pretrained/en-pt.checkpoint").mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "model")
    names = [directory.name for directory in embedded_bundles()]
    assert names == ["de-en", "en-pt"]


def test_nothing_to_serve_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.loading.embedded_bundles", list)
    with pytest.raises(
        ConfigError, match="There is no model to serve: name a bundle with --bundle"
    ):
        find_bundles([])


def test_a_broken_bundle_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    directory = _bundle(tmp_path)
    (directory / "decoder.onnx").unlink()
    with pytest.raises(BundleError, match=r"decoder.onnx"):
        _load(directory)


def test_two_bundles_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Two bundles have the model name 'en-pt'"):
        _load(_bundle(tmp_path / "a"), _bundle(tmp_path / "b"))


def test_a_precision_that_the_provider_does_not_run_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = _bundle(tmp_path)
    engine = EngineConfig(provider="cuda")
    config = Config(models=ModelsConfig(bundles=(str(directory),)), engine=engine)
    with pytest.raises(ConfigError, match="this ONNX Runtime has only"):
        load_models(config, NullObserver())
    monkeypatch.setattr("service.loading.check_provider", lambda _: None)
    with pytest.raises(ConfigError, match="'cuda' takes float16, but this bundle is float32"):
        load_models(config, NullObserver())


def test_a_device_has_one_worker_and_a_cpu_one_for_each_core() -> None:
    assert loading._num_workers("cuda") == 1
    assert loading._num_workers("cpu") == available_cores()


def test_a_graph_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"encoder.onnx: ONNX Runtime .* does not take it"):
        _load(_with_vocabulary(tmp_path))


def test_a_vocabulary_that_is_not_the_model_s_is_refused(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(SENTENCES, vocab_size=280)
    directory = _bundle(tmp_path, **{"tokenizer.spm": tokenizer})
    with pytest.raises(
        BundleError, match="`vocab_size` is 280 in the tokenizer, but 32 in the manifest"
    ):
        _load(directory)
