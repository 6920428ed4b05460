from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import load_model, save_model
from model.errors import DataError, ModelError, TrainingError
from model.tokenizer import JOINT_FILE, SOURCE_FILE, Tokenizer
from model.train import create_model, prepare_tokenizer, run
from model.train_config_file import load_train_config
from tests.tiny_models import SENTENCES, make_model, make_tokenizer

MODEL = "d_model = 16\nnum_heads = 2\nd_ff = 32\nencoder_layers = 1\ndecoder_layers = 1\n"


def _write(
    folder: Path,
    *,
    model: str = MODEL,
    tokenizer: str = "vocab_size = 310",
    training: str = "",
    data: str = "",
) -> Path:
    pairs = [(english, english.upper()) for english in SENTENCES[:2]]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "train.tsv").write_text(text, encoding="utf-8")
    path = folder / "recipe.toml"
    path.write_text(
        f'output = "run"\n[model]\n{model}\n[tokenizer]\n{tokenizer}\n'
        f'[data]\ntrain = ["train.tsv"]\n{data}\n'
        f'[training]\nmax_steps = 2\nwarmup_steps = 1\ndevice = "cpu"\n{training}\n',
        encoding="utf-8",
    )
    return path


def _events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "run" / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_run_leaves_a_checkpoint_that_translates(tmp_path: Path) -> None:
    run(_write(tmp_path))
    last = tmp_path / "run" / "checkpoints" / "last"
    model, tokenizer = load_model(last), Tokenizer.load_directory(last)
    assert model.config.target_vocab_size == tokenizer.vocab_size == 310
    assert model.config.eos_id == tokenizer.eos_id
    assert (tmp_path / "run" / JOINT_FILE).is_file()
    used = (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    assert used == (tmp_path / "recipe.toml").read_text(encoding="utf-8")


def test_full_disk_is_told_with_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*arguments: Any, **fields: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("model.training_log.TrainingLog.write", write)
    with pytest.raises(TrainingError, match="run: No space left on device"):
        run(_write(tmp_path))


def test_configuration_may_stand_in_the_folder_of_its_run(tmp_path: Path) -> None:
    path = _write(tmp_path).rename(tmp_path / "config.toml")
    path.write_text(path.read_text(encoding="utf-8").replace('"run"', '"."'), encoding="utf-8")
    run(path)
    assert (tmp_path / "checkpoints" / "last").is_dir()


def test_second_run_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    run(_write(tmp_path))
    run(_write(tmp_path).rename(tmp_path / "again.toml"))
    events = [
        json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    ]
    assert [event["event"] for event in events].count("resume") == 1
    assert events[-1] == {**events[-1], "event": "resume", "step": 2}


def test_seed_decides_the_first_weights(tmp_path: Path) -> None:
    weights = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run(_write(tmp_path / name))
        checkpoint = tmp_path / name / "run" / "checkpoints" / "last"
        weights.append(load_model(checkpoint).source_embedding.weight)
    assert torch.equal(weights[0], weights[1])


def test_separate_vocabularies_are_trained_on_their_own_side(tmp_path: Path) -> None:
    config = load_train_config(_write(tmp_path, tokenizer="vocab_size = 285\njoint = false"))
    config.output.mkdir()
    tokenizer = prepare_tokenizer(config)
    assert not tokenizer.is_joint
    assert (config.output / SOURCE_FILE).is_file()
    assert create_model(config, tokenizer).config.tie_embeddings == "decoder"


def test_given_vocabulary_is_used_as_it_is(tmp_path: Path) -> None:
    make_tokenizer(vocab_size=305).save(tmp_path)
    config = load_train_config(_write(tmp_path, tokenizer=f'path = "{JOINT_FILE}"'))
    assert prepare_tokenizer(config).vocab_size == 305


def test_training_starts_from_a_checkpoint(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    start = make_model(source_vocab_size=320, target_vocab_size=320, seed=5)
    save_model(tmp_path / "start", start, tokenizer, dtype=torch.float16)
    config = load_train_config(_write(tmp_path, model='start_from = "start"\ndropout = 0.3'))
    assert prepare_tokenizer(config).vocab_size == 320
    model = create_model(config, tokenizer)
    assert model.config.dropout == 0.3
    assert torch.equal(model.source_embedding.weight, start.source_embedding.weight.half().float())


def test_data_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, data="max_source_tokens = 2")
    with pytest.raises(DataError, match=r"`train` leaves no sentence pair \(2 are longer"):
        run(path)


def test_broken_data_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = _write(tmp_path)
    (tmp_path / "train.tsv").write_text("one\tum\ntwo\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"train\.tsv:2: must be source TAB target"):
        run(path)


def test_run_leaves_its_origin_and_a_picture(tmp_path: Path) -> None:
    config = _write(tmp_path)
    run(config)
    output = tmp_path / "run"
    (origin,) = (output / "provenance.jsonl").read_text(encoding="utf-8").splitlines()
    names = [Path(file["path"]).name for file in json.loads(origin)["files"]]
    assert names == ["recipe.toml", "train.tsv"]
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_data_that_changed_since_the_run_began_is_told(tmp_path: Path) -> None:
    run(_write(tmp_path))
    config = _write(tmp_path)
    (tmp_path / "train.tsv").write_text("one\tum\n", encoding="utf-8")
    run(config)
    assert [event["file"] for event in _events(tmp_path, "changed")] == [
        str(tmp_path / "train.tsv")
    ]


def test_training_goes_on_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "model.curves", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    run(_write(tmp_path))
    assert _events(tmp_path, "curves")[0]["missing"].startswith("matplotlib")
    assert (tmp_path / "run" / "checkpoints" / "last").is_dir()


def test_validation_scores_the_first_held_out_pairs(tmp_path: Path) -> None:
    (tmp_path / "valid.tsv").write_text("one\tum\ntwo\tdois\n", encoding="utf-8")
    data = 'valid = ["valid.tsv"]'
    run(_write(tmp_path, data=data, training="validate_every_steps = 1\nscore_pairs = 2"))
    scores = [event["scores"] for event in _events(tmp_path, "validation")]
    assert len(scores) == 2
    assert all(set(found) == {"BLEU", "chrF"} for found in scores)
    assert all(0.0 <= value <= 100.0 for found in scores for value in found.values())


def test_tensorboard_without_its_package_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if "tensorboard" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModelError, match="pip install"):
        run(_write(tmp_path, training="tensorboard = true"))
    assert not _events(tmp_path, "step")
