from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from model.processes import Processes
from model.provenance import append_provenance, describe_run, find_commit
from model.train_config_file import load_train_config

ALONE = Processes(device=torch.device("cpu"))


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    (tmp_path / "train.tsv").write_text("one\tum\n", encoding="utf-8")
    path = tmp_path / "recipe.toml"
    path.write_text('output = "run"\nseed = 7\n[data]\ntrain = ["train.tsv"]\n', encoding="utf-8")
    return path


def _describe(path: Path) -> dict[str, Any]:
    return describe_run(load_train_config(path), ALONE)


def _git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_every_setting_is_told_also_those_that_were_not_given(config_path: Path) -> None:
    config = _describe(config_path)["config"]
    assert config["seed"] == 7
    assert config["training"]["label_smoothing"] == 0.1
    assert json.loads(json.dumps(config)) == config


def test_data_files_and_configuration_are_named_with_their_hash(config_path: Path) -> None:
    files = {Path(file["path"]).name: file for file in _describe(config_path)["files"]}
    assert set(files) == {"recipe.toml", "train.tsv"}
    content = (config_path.parent / "train.tsv").read_bytes()
    assert files["train.tsv"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert files["train.tsv"]["size_bytes"] == len(content)


def test_versions_device_and_processes_are_told(config_path: Path) -> None:
    description = _describe(config_path)
    assert description["versions"]["torch"] == torch.__version__
    assert description["machine"]["device"] == "cpu"
    assert description["machine"]["processes"] == 1


def test_changed_data_is_told_and_a_changed_configuration_is_not(config_path: Path) -> None:
    path = config_path.parent / "provenance.jsonl"
    assert append_provenance(path, _describe(config_path)) == []
    config_path.write_text(config_path.read_text(encoding="utf-8") + "[training]\nmax_steps = 9\n")
    assert append_provenance(path, _describe(config_path)) == []
    data = config_path.parent / "train.tsv"
    data.write_text("two\tdois\n", encoding="utf-8")
    assert append_provenance(path, _describe(config_path)) == [str(data)]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("torn", ['{"time": "20', "{}\n", "\x00\x00"])
def test_line_that_a_kill_cut_off_is_passed_over(config_path: Path, torn: str) -> None:
    path = config_path.parent / "provenance.jsonl"
    append_provenance(path, _describe(config_path))
    with path.open("a", encoding="utf-8") as stream:
        stream.write(torn)
    data = config_path.parent / "train.tsv"
    data.write_text("two\tdois\n", encoding="utf-8")
    assert append_provenance(path, _describe(config_path)) == [str(data)]
    assert append_provenance(path, _describe(config_path)) == []


def test_commit_is_told_with_what_was_changed_since(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("one")
    _git(tmp_path, "add", "code.py")
    _git(tmp_path, "commit", "-qm", "first")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    assert find_commit(tmp_path) == {"id": commit, "changed": False}
    (tmp_path / "code.py").write_text("two")
    assert find_commit(tmp_path) == {"id": commit, "changed": True}


def test_folder_inside_a_repository_that_does_not_track_it_has_no_commit(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("one")
    _git(tmp_path, "add", "code.py")
    _git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "site-packages").mkdir()
    assert find_commit(tmp_path / "site-packages") is None


def test_without_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert find_commit(tmp_path) is None
