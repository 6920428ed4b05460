from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from safetensors.torch import save_model as save_shared

from model.checkpoint import (
    CONFIG_FILE,
    TRAINER_FILE,
    TRAINER_TENSORS_FILE,
    WEIGHTS_FILE,
    average_checkpoints,
    finish_replacing,
    load_config,
    load_model,
    load_trainer_state,
    replace_directory,
    save_model,
    write_model,
    write_trainer_state,
)
from model.errors import CheckpointError
from model.tokenizer import JOINT_FILE, Tokenizer
from model.transformer import Transformer
from tests.tiny_models import make_model, make_tokenizer

TYINGS = ["none", "decoder", "all"]


def _same_weights(first: Transformer, second: Transformer) -> bool:
    other = second.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in first.state_dict().items())


@pytest.mark.parametrize("tying", TYINGS)
def test_model_comes_back_bit_for_bit(tmp_path: Path, tying: str) -> None:
    model = make_model(tie_embeddings=tying, output_bias=True)
    save_model(tmp_path / "checkpoint", model)
    loaded = load_model(tmp_path / "checkpoint")
    assert loaded.config == model.config
    assert _same_weights(loaded, model)
    assert not loaded.training


def test_tied_matrix_is_stored_once_and_stays_tied(tmp_path: Path) -> None:
    save_model(tmp_path / "checkpoint", make_model(tie_embeddings="all"))
    stored = load_file(str(tmp_path / "checkpoint" / WEIGHTS_FILE))
    assert sum(tensor.shape == (12, 16) for tensor in stored.values()) == 1
    loaded = load_model(tmp_path / "checkpoint")
    assert loaded.output_projection.weight is loaded.source_embedding.weight


def test_any_name_of_a_tied_matrix_will_do(tmp_path: Path) -> None:
    model = make_model(tie_embeddings="all")
    save_model(tmp_path / "checkpoint", model)
    save_shared(model, str(tmp_path / "checkpoint" / WEIGHTS_FILE))
    assert _same_weights(load_model(tmp_path / "checkpoint"), model)


def test_half_precision_halves_the_file_and_loads_as_float32(tmp_path: Path) -> None:
    model = make_model()
    save_model(tmp_path / "whole", model)
    save_model(tmp_path / "half", model, dtype=torch.float16)
    stored = load_file(str(tmp_path / "half" / WEIGHTS_FILE))
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    loaded = load_model(tmp_path / "half")
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, model.state_dict()[name].half().float())


def test_vocabulary_travels_with_the_weights(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    save_model(tmp_path / "checkpoint", make_model(), tokenizer)
    assert (tmp_path / "checkpoint" / JOINT_FILE).is_file()
    loaded = Tokenizer.load_directory(tmp_path / "checkpoint")
    assert loaded.encode_source("a cat") == tokenizer.encode_source("a cat")


def test_checkpoint_holds_no_pickle(tmp_path: Path) -> None:
    model, optimizer = _make_trained()
    save_model(tmp_path / "checkpoint", model, make_tokenizer())
    write_trainer_state(tmp_path / "checkpoint", model, optimizer, {"step": 1})
    names = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert names == {
        "config.json",
        "model.safetensors",
        "tokenizer.spm",
        "trainer.json",
        "trainer.safetensors",
    }
    for path in (tmp_path / "checkpoint").glob("*.safetensors"):
        load_file(str(path))


def test_weights_that_do_not_fit_are_refused_with_every_fault(tmp_path: Path) -> None:
    save_model(tmp_path / "checkpoint", make_model())
    path = tmp_path / "checkpoint" / WEIGHTS_FILE
    weights = load_file(str(path))
    del weights["encoder.layers.0.self_attention.query_proj.bias"]
    weights["encoder.layers.0.feed_forward.linear_in.weight"] = torch.zeros(3, 16)
    weights["stranger"] = torch.zeros(1)
    save_file(weights, str(path))
    with pytest.raises(CheckpointError) as caught:
        load_model(tmp_path / "checkpoint")
    message = str(caught.value)
    assert "query_proj.bias` is missing" in message
    assert "linear_in.weight` has shape (3, 16), not (32, 16)" in message
    assert "`stranger` is no part of this model" in message


def test_missing_or_broken_files_are_refused_by_name(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        load_model(directory)
    save_model(directory, make_model())
    weights = (directory / WEIGHTS_FILE).read_bytes()
    (directory / WEIGHTS_FILE).write_bytes(weights[:-7])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        load_model(directory)
    (directory / WEIGHTS_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        load_model(directory)


@pytest.mark.parametrize(
    "content", ["{", "[" * 100_000, "9" * 5000, "[]", '{"d_model": 16}', '{"d_modle": 16}']
)
def test_broken_configuration_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json: "):
        load_config(tmp_path)


def test_failed_write_leaves_the_old_directory(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    with replace_directory(directory) as partial:
        (partial / "old").write_text("old")

    def fail() -> None:
        with replace_directory(directory) as partial:
            (partial / "new").write_text("new")
            assert not (directory / "new").exists()
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        fail()
    assert [path.name for path in directory.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_weights_that_cannot_be_written_are_told_with_the_file(tmp_path: Path) -> None:
    model = make_model()
    (tmp_path / WEIGHTS_FILE).mkdir()
    with pytest.raises(CheckpointError, match=rf"{WEIGHTS_FILE}: cannot be written"):
        write_model(tmp_path, model)
    (tmp_path / TRAINER_TENSORS_FILE).mkdir()
    with pytest.raises(CheckpointError, match=rf"{TRAINER_TENSORS_FILE}: cannot be written"):
        write_trainer_state(tmp_path, model, torch.optim.Adam(model.parameters()), {})


@pytest.mark.parametrize("is_read_first", [True, False])
def test_directory_that_a_kill_left_aside_comes_back(tmp_path: Path, is_read_first: bool) -> None:
    directory = tmp_path / "last"
    aside = tmp_path / ".last.old"
    aside.mkdir()
    (aside / "file").write_text("old")
    if is_read_first:
        finish_replacing(directory)
        assert (directory / "file").read_text() == "old"
    with pytest.raises(RuntimeError), replace_directory(directory) as partial:
        (partial / "file").write_text("new")
        raise RuntimeError
    assert (directory / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_old_directory_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, rename = tmp_path / "last", Path.rename
    with replace_directory(directory) as partial:
        (partial / "file").write_text("old")

    def refuse(path: Path, target: Path) -> Path:
        if path.name.endswith(".partial"):
            raise OSError
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError), replace_directory(directory) as partial:  # noqa: PT011
        (partial / "file").write_text("new")
    assert (directory / "file").read_text() == "old"


def test_new_directory_replaces_the_old_one_as_a_whole(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with replace_directory(tmp_path / "checkpoint") as partial:
            (partial / name).write_text(name)
    assert [path.name for path in tmp_path.rglob("*")] == ["checkpoint", "new"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_directory_is_not_replaced(tmp_path: Path, kind: str) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    other.mkdir()
    if kind == "file":
        place.write_text("precious")
    else:
        place.symlink_to(other)
    with pytest.raises(NotADirectoryError), replace_directory(place):
        pass
    assert place.is_symlink() or place.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "place"]


def _make_trained(steps: int = 2) -> tuple[Transformer, torch.optim.Adam]:
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        _update(model, optimizer)
    return model, optimizer


def _update(model: Transformer, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    source = torch.tensor([[5, 6, 2]])
    logits = model(source, torch.ones_like(source, dtype=torch.bool), torch.tensor([[1, 4]]))
    logits.square().mean().backward()
    optimizer.step()


def test_optimizer_goes_on_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = _make_trained()
    save_model(tmp_path / "checkpoint", model)
    write_trainer_state(tmp_path / "checkpoint", model, optimizer, {"step": 2, "loss": 0.5})
    expected = torch.rand(3)  # the draw after the checkpoint
    _update(model, optimizer)

    resumed = load_model(tmp_path / "checkpoint")
    fresh = torch.optim.Adam(resumed.parameters(), lr=1e-3)
    progress = load_trainer_state(tmp_path / "checkpoint", resumed, fresh)
    assert progress == {"step": 2, "loss": 0.5}
    assert torch.equal(torch.rand(3), expected)
    _update(resumed, fresh)
    assert _same_weights(resumed, model)


def test_checkpoint_without_trainer_state_is_refused_for_resuming(tmp_path: Path) -> None:
    model, optimizer = _make_trained(0)
    save_model(tmp_path / "checkpoint", model)
    with pytest.raises(CheckpointError, match=r"trainer\.safetensors: cannot be read"):
        load_trainer_state(tmp_path / "checkpoint", model, optimizer)


def test_trainer_state_is_readable_json(tmp_path: Path) -> None:
    model, optimizer = _make_trained(0)
    write_trainer_state(tmp_path, model, optimizer, {"step": 7})
    assert json.loads((tmp_path / TRAINER_FILE).read_text()) == {"step": 7}


def test_average_is_the_mean_of_each_weight(tmp_path: Path) -> None:
    models = [make_model(seed=seed) for seed in (1, 2, 3)]
    for number, model in enumerate(models):
        save_model(tmp_path / str(number), model)
    averaged = average_checkpoints([tmp_path / str(number) for number in range(3)])
    for name, tensor in averaged.state_dict().items():
        mean = torch.stack([model.state_dict()[name] for model in models]).double().mean(0)
        assert torch.allclose(tensor.double(), mean, atol=1e-7)


def test_average_of_one_is_itself(tmp_path: Path) -> None:
    model = make_model()
    save_model(tmp_path / "one", model)
    assert _same_weights(average_checkpoints([tmp_path / "one"]), model)


def test_average_of_different_models_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path / "narrow", make_model(d_ff=8))
    save_model(tmp_path / "wide", make_model(d_ff=16))
    with pytest.raises(CheckpointError, match="another configuration"):
        average_checkpoints([tmp_path / "narrow", tmp_path / "wide"])
    with pytest.raises(CheckpointError, match="no checkpoint"):
        average_checkpoints([])
