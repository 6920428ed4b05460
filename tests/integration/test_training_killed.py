"""A training that is killed for real, at any moment, ends as one that was not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from model.checkpoint import load_model
from tests.tiny_models import SENTENCES

ROOT = Path(__file__).resolve().parents[2]
STEPS, KILLS = 400, 3


def _write(folder: Path) -> Path:
    folder.mkdir()
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    lines = [f"{word} {words[-i]}\t{words[-i].upper()} {word}\n" for i, word in enumerate(words)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    path = folder / "recipe.toml"
    path.write_text(
        'output = "run"\n[model]\nd_model = 16\nnum_heads = 2\nd_ff = 32\nencoder_layers = 1\n'
        'decoder_layers = 1\n[tokenizer]\nvocab_size = 330\n[data]\ntrain = ["train.tsv"]\n'
        f'valid = ["train.tsv"]\n[training]\nmax_steps = {STEPS}\nwarmup_steps = 10\n'
        'batch_tokens = 256\ndevice = "cpu"\nlearning_rate = 0.01\nlog_every_steps = 10\n'
        "validate_every_steps = 50\ncheckpoint_every_steps = 20\naverage_checkpoints = 3\n",
        encoding="utf-8",
    )
    return path


def _start(config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "dragoman.py"), "train", str(config)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _checkpoints(config: Path) -> list[str]:
    folder = config.parent / "run" / "checkpoints"
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.mark.slow
def test_killed_training_ends_with_the_weights_of_one_that_was_not(tmp_path: Path) -> None:
    straight, killed = _write(tmp_path / "straight"), _write(tmp_path / "killed")
    assert _start(straight).wait(timeout=300) == 0
    moments = random.Random(1)
    for _ in range(KILLS):
        before = _checkpoints(killed)
        process = _start(killed)
        deadline = time.monotonic() + 120
        while _checkpoints(killed) == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(moments.random() * 0.3)
        process.kill()
        process.wait()
    assert _start(killed).wait(timeout=300) == 0
    assert b'"event": "resume"' in (killed.parent / "run" / "log.jsonl").read_bytes()
    assert _checkpoints(killed) == _checkpoints(straight)
    for name in ("last", "best", "averaged"):
        models = [load_model(p.parent / "run" / "checkpoints" / name) for p in (straight, killed)]
        expected = models[0].state_dict()
        assert all(torch.equal(t, expected[key]) for key, t in models[1].state_dict().items())
