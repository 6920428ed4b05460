"""Where a run comes from: what would be needed to make it once more.

Each start appends one line to `provenance.jsonl` in the folder of the run: every setting as it was used, SHA-256 and
size of each data file, versions, and the commit of the program when it runs from a checkout.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from model.processes import Processes
from model.train_config import TrainConfig
from model.training_log import end_torn_line

_PACKAGES = ("dragoman", "torch", "numpy", "sentencepiece", "safetensors", "sacrebleu")
_HERE = Path(__file__).resolve().parent


def describe_run(config: TrainConfig, processes: Processes) -> dict[str, Any]:
    """Say what a run is made of, as plain values for JSON."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "config": _to_plain(dataclasses.asdict(config)),
        "files": [describe_file(path) for path in _files(config)],
        "commit": find_commit(_HERE),
        "versions": {"python": platform.python_version(), **_versions(_PACKAGES)},
        "machine": {
            "platform": platform.platform(),
            "device": str(processes.device),
            "processes": processes.world_size,
        },
    }


def append_provenance(path: Path, description: Mapping[str, Any]) -> list[str]:
    """Add a start to the file.

    Returns:
        The data files whose content is no longer what the start before this one saw.
    """
    before = _last_hashes(path)
    end_torn_line(path)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(description, ensure_ascii=False) + "\n")
    now = _hashes(description)
    return sorted(name for name in now if before.get(name, now[name]) != now[name])


def describe_file(path: Path) -> dict[str, Any]:
    """Give path, size and SHA-256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(path), "size_bytes": path.stat().st_size, "sha256": digest}


def find_commit(directory: Path) -> dict[str, Any] | None:
    """Give the git commit of a directory and whether anything differs from it; None where git does not track it.

    An installed package may lie inside somebody else's repository, so a file of the directory must be tracked.
    """
    tracked = _git(directory, "ls-files", ".")
    commit = _git(directory, "rev-parse", "HEAD")
    if not tracked or not commit:
        return None
    is_changed = _git(directory, "status", "--porcelain", "--untracked-files=no") != ""
    return {"id": commit, "changed": is_changed}


def _git(directory: Path, *words: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(directory), *words], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def _files(config: TrainConfig) -> list[Path]:
    """List what is read beside the configuration: data, given vocabularies, first weights."""
    files = [path for file in (*config.data.train, *config.data.valid) for path in file.paths]
    files += [path for path in (config.tokenizer.path, config.tokenizer.target_path) if path]
    if config.model.start_from is not None:
        files += sorted(path for path in config.model.start_from.iterdir() if path.is_file())
    return list(dict.fromkeys([config.path, *files]))


def _versions(packages: Iterable[str]) -> dict[str, str]:
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _last_hashes(path: Path) -> dict[str, str]:
    """Give the hashes of the last whole line; what a killed run could not finish is passed over."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in reversed(lines):
        try:
            return _hashes(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue
    return {}


def _hashes(description: Mapping[str, Any]) -> dict[str, str]:
    config = description["config"]["path"]
    return {file["path"]: file["sha256"] for file in description["files"] if file["path"] != config}


def _to_plain(value: Any) -> Any:
    """Turn a tree of sections into what JSON knows."""
    if isinstance(value, Mapping):
        return {key: _to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
