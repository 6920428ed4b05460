from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from model.errors import TrainConfigError
from model.parallel_text import ParallelFile
from model.train_config import TrainConfig, TrainingSection
from model.train_config_file import load_train_config

SMALLEST = 'output = "run"\n[data]\ntrain = ["train.tsv"]\n'


def _load(folder: Path, text: str) -> TrainConfig:
    (folder / "train.tsv").touch()
    (folder / "valid.en").touch()
    (folder / "valid.pt").touch()
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return load_train_config(path)


def test_smallest_file_takes_every_default(tmp_path: Path) -> None:
    config = _load(tmp_path, SMALLEST)
    assert config.training == TrainingSection()
    assert config.output == tmp_path / "run"
    assert config.data.train == (ParallelFile(tmp_path / "train.tsv"),)
    assert config.seed == 1


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        """
        output = "/elsewhere/run"
        seed = 7
        [model]
        preset = "tiny"
        dropout = 0
        norm_order = "pre"
        [tokenizer]
        kind = "bpe"
        joint = false
        [data]
        train = ["train.tsv"]
        valid = [["valid.en", "valid.pt"]]
        [training]
        learning_rate = 1e-3
        precision = "bfloat16"
        """,
    )
    assert config.output == Path("/elsewhere/run")
    assert config.model.fields["d_model"] == 256
    assert config.model.fields["dropout"] == 0.0
    assert config.tokenizer.kind == "bpe"
    assert not config.tokenizer.joint
    assert config.data.valid == (ParallelFile(tmp_path / "valid.en", tmp_path / "valid.pt"),)
    assert config.training.learning_rate == 1e-3


def test_field_wins_over_the_preset(tmp_path: Path) -> None:
    config = _load(tmp_path, SMALLEST + '[model]\npreset = "tiny"\ndecoder_layers = 1\n')
    assert config.model.fields["decoder_layers"] == 1
    assert config.model.fields["encoder_layers"] == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nwarmup_step = 3", r"\[training\] `warmup_step` .* `warmup_steps`\?"),
        ("[model]\nd_modl = 3", r"\[model\] `d_modl` is not a key, did you mean `d_model`\?"),
        ("[trainig]\nx = 1", r"`trainig` is not a key, did you mean `training`\?"),
        ("[training]\nlearning_rate = inf", r"`learning_rate` must be above 0 and finite"),
        ("[training]\nmax_steps = 0", r"\[training\] `max_steps` must be at least 1, but is 0"),
        ("[training]\nmax_steps = true", "`max_steps` must be a whole number, but is True"),
        ("[training]\nmax_steps = 1.5", "`max_steps` must be a whole number, but is 1.5"),
        ('[training]\nclip_norm = "x"', "`clip_norm` must be a number, but is 'x'"),
        ('[training]\nprecision = "fp8"', "`precision` must be one of 'float32', 'bfloat16'"),
        ("[training]\nlabel_smoothing = 1.0", r"`label_smoothing` must be in \[0, 1\)"),
        ("[training]\naverage_checkpoints = 9", "must be at most `keep_checkpoints`"),
        ("[training]\nbatch_tokens = 9", r"`batch_tokens` must be at least the longest .* 256"),
        ('[model]\npreset = "huge"', "`preset` must be one of 'tiny', 'base', 'big'"),
        ("[model]\nnum_heads = 7", "`num_heads` must be a divisor of `d_model`"),
        ("[model]\nsource_vocab_size = 7", "`source_vocab_size` is not a key"),
        ('[model]\nd_model = "wide"', "`d_model` must be a whole number, but is 'wide'"),
        ('[model]\nstart_from = "gone"', "there is no directory .*gone"),
        ('[model]\nstart_from = "."\nd_model = 8', "`d_model` comes from the checkpoint"),
        ('[tokenizer]\npath = "gone.spm"', r"`path`: there is no file .*gone\.spm"),
        ('[tokenizer]\nkind = "words"', "`kind` must be one of 'unigram', 'bpe'"),
        ("[tokenizer]\njoint = 1", "`joint` must be true or false, but is 1"),
    ],
)
def test_fault_is_named_with_its_section(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TrainConfigError, match=r"recipe\.toml: .*" + message):
        _load(tmp_path, SMALLEST + text + "\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"`output` is missing; .*\[data\] `train` is missing"),
        ('output = ""\n[data]\ntrain = ["train.tsv"]', "`output` must be a string, but is ''"),
        ('output = "run"\ndata = 3', r"`data` must be a table, \[data\]"),
        ('output = "run"\n[data]\ntrain = []', "`train` must be at least one file"),
        ('output = "run"\n[data]\ntrain = "train.tsv"', "`train` must be a list of files"),
        ('output = "run"\n[data]\ntrain = [["a", "b", "c"]]', r"`train` must be a list of \"file"),
        ('output = "run"\n[data]\ntrain = ["gone.tsv"]', r"there is no file .*gone\.tsv"),
        ("output = ", r"recipe\.toml: cannot be read: Invalid value"),
        ("output = " + "[" * 100_000, r"recipe\.toml: cannot be read"),
        ("output = " + "9" * 5000, r"recipe\.toml: cannot be read"),
    ],
)
def test_broken_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TrainConfigError, match=message):
        _load(tmp_path, text)


def test_all_faults_stand_in_one_message(tmp_path: Path) -> None:
    with pytest.raises(TrainConfigError) as caught:
        _load(
            tmp_path,
            SMALLEST + "[model]\nd_modl = 1\n[training]\nmax_steps = 0\naccumulation = -1\n",
        )
    message = str(caught.value)
    assert message.count(";") == 2
    for name in ("d_modl", "max_steps", "accumulation"):
        assert f"`{name}`" in message


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainConfigError, match=r"gone\.toml: cannot be read: No such file"):
        load_train_config(tmp_path / "gone.toml")


def test_configuration_cannot_change(tmp_path: Path) -> None:
    config = _load(tmp_path, SMALLEST)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 2  # type: ignore[misc]
