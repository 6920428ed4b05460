"""float16, which is for GPUs, as far as CPUs run it: ONNX Runtime casts to float32 and back around most operators."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from safetensors.torch import load_file, save_file

import dragoman
from export.bundle import Bundle, Precision
from export.errors import ExportError
from export.exporter import Companions, export_bundle
from export.parity import verify
from service.config import Config, EngineConfig, ModelsConfig
from service.engine.device_engine import DeviceEngine, load_device_engine
from service.engine.device_memory import Device
from service.engine.onnx_engine import load_onnx_engine
from service.loading import load_models
from service.stats import NullObserver
from tests.companies import random_sequences, run, shuffles
from tests.tiny_bundles import make_checkpoint, make_facts, make_shortlist

BundleMaker = Callable[[Precision], Bundle]


@pytest.fixture(scope="module")
def bundle(random_bundle: BundleMaker) -> Bundle:
    return random_bundle("float16")


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> DeviceEngine:
    return load_device_engine(bundle, provider="cpu", device=Device("cpu"), max_encode_tokens=64)


def test_it_does_what_the_model_does(bundle: Bundle) -> None:
    assert verify(bundle.directory, bundle.directory.parent / "checkpoint") == []


def test_every_matrix_and_cache_is_float16_and_log_probabilities_are_float32(
    bundle: Bundle,
) -> None:
    for path in (bundle.encoder_path, bundle.decoder_path):
        graph = onnx.load(path, load_external_data=False).graph
        floats = [each for each in graph.initializer if each.data_type == TensorProto.FLOAT]
        assert all(np.prod(each.dims) <= 2 for each in floats), "what masks are made of at most"
        made = {output: node for node in graph.node for output in node.output}
        for node in graph.node:
            if node.op_type in {"LogSoftmax", "Exp"}:
                assert comes_from_cast_to_float(node.input[0], made)
    types = {
        value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)
    }
    caches = {each for name, each in types.items() if "key" in name or "value" in name}
    assert caches == {TensorProto.FLOAT16}
    assert types["candidate_log_probs"] == types["edit_biases"] == TensorProto.FLOAT


def comes_from_cast_to_float(name: str, made: dict[str, onnx.NodeProto]) -> bool:
    node = made[name]
    if node.op_type == "Cast":
        return bool(node.attribute[0].i == TensorProto.FLOAT)
    assert node.op_type in {"Sub", "Add"}
    return comes_from_cast_to_float(node.input[0], made)


def test_weights_are_half_as_large(bundle: Bundle, random_bundle: BundleMaker) -> None:
    half, whole = (
        each.manifest.files["weights.bin"].size_bytes for each in (bundle, random_bundle("float32"))
    )
    assert 0.49 * whole < half < 0.51 * whole


def test_a_sentence_is_the_same_alone_and_in_any_company(engine: DeviceEngine) -> None:
    sequences = random_sequences(engine.facts.vocab_size, 12)
    alone = {s.sequence_id: run(engine, [s])[s.sequence_id] for s in sequences}
    for order, per_step in shuffles(sequences):
        assert run(engine, order, per_step=per_step) == alone


def test_translations_are_nearly_those_of_float32(
    engine: DeviceEngine, random_bundle: BundleMaker
) -> None:
    sequences = random_sequences(engine.facts.vocab_size)
    found, expected = (
        run(engine, sequences),
        run(load_onnx_engine(random_bundle("float32")), sequences),
    )
    same = [found[i][0].token_ids == expected[i][0].token_ids for i in expected]
    assert np.mean(same) >= 0.8
    for i in expected:
        assert found[i][0].log_prob == pytest.approx(expected[i][0].log_prob, rel=0.05, abs=0.1)


def test_a_cpu_server_refuses_it(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert dragoman.main(["translate", "--bundle", str(bundle.directory), "x"]) != 0
    assert "takes int8 or float32, but this bundle is float16" in capsys.readouterr().err


def test_a_server_for_gpus_loads_it_and_warms_it_up(
    bundle: Bundle, engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the CPU in the place of the GPU."""
    monkeypatch.setattr("service.loading.check_provider", lambda _: None)
    monkeypatch.setattr("service.engine.load_engine.load_device_engine", lambda *_, **__: engine)
    config = Config(
        models=ModelsConfig(bundles=(str(bundle.directory),)), engine=EngineConfig(provider="cuda")
    )
    (model,) = load_models(config, NullObserver())
    assert (model.provider, model.num_workers) == ("cuda", 1)


def test_a_shortlist_goes_with_cpus_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(ExportError, match="float16 is for GPUs, which look at all words"):
        export_bundle(
            checkpoint,
            tmp_path / "bundle",
            "float16",
            make_facts(),
            Companions(shortlist=make_shortlist()),
        )
    shutil.copy(checkpoint / "config.json", tmp_path / "list.npz")
    words = ["export", str(checkpoint), str(tmp_path / "b"), "--source", "en", "--target", "pt"]
    words += ["--license", "X", "--precision", "float16", "--shortlist"]
    assert dragoman.main([*words, str(tmp_path / "list.npz")]) == 2
    assert "a shortlist is for CPUs" in capsys.readouterr().err


def test_a_number_that_is_too_large_is_refused(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    (path,) = checkpoint.glob("*.safetensors")
    tensors = load_file(path)
    name = next(
        n for n in tensors if "encoder" in n and "feed_forward" in n and tensors[n].dim() == 2
    )
    tensors[name][0, 0] = 1e5
    save_file(tensors, path)
    with pytest.raises(ExportError, match="too large for float16"):
        export_bundle(checkpoint, tmp_path / "bundle", "float16", make_facts())
    assert not (tmp_path / "bundle").exists()
