"""A tiny model learns to reverse digit strings, through the real configuration file, trainer and decoder."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from model.checkpoint import load_model
from model.generate import SearchOptions, create_translate
from model.tokenizer import Tokenizer
from model.train import run

CONFIG = """
output = "run"
seed = 1

[model]
d_model = 64
num_heads = 4
d_ff = 128
encoder_layers = 2
decoder_layers = 1
dropout = 0.0
norm_order = "pre"
final_norm = true

[tokenizer]
kind = "bpe"
vocab_size = 15
byte_fallback = false
split_digits = true

[data]
train = ["train.tsv"]
valid = ["valid.tsv"]

[training]
max_steps = 600
batch_tokens = 1000
learning_rate = 4e-3
warmup_steps = 100
cooldown_steps = 250
label_smoothing = 0.1
log_every_steps = 100
validate_every_steps = 300
checkpoint_every_steps = 300
device = "cpu"
"""


def _digit_strings(count: int) -> list[str]:
    draw = random.Random(7)
    strings: set[str] = set()
    while len(strings) < count:
        strings.add("".join(draw.choices("0123456789", k=draw.randint(3, 8))))
    return sorted(strings, key=lambda _: draw.random())


def _write_pairs(path: Path, strings: list[str]) -> None:
    path.write_text("".join(f"{text}\t{text[::-1]}\n" for text in strings), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Train once; give the run's folder and strings that training never saw."""
    folder = tmp_path_factory.mktemp("reversal")
    strings = _digit_strings(21_000)
    _write_pairs(folder / "train.tsv", strings[:20_000])
    _write_pairs(folder / "valid.tsv", strings[20_000:20_500])
    (folder / "reversal.toml").write_text(CONFIG, encoding="utf-8")
    run(folder / "reversal.toml")
    return folder / "run", strings[20_500:]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_unseen_strings_are_reversed(trained: tuple[Path, list[str]], beam_size: int) -> None:
    run_folder, strings = trained
    strings = strings if beam_size == 1 else strings[:100]
    checkpoint = run_folder / "checkpoints" / "last"
    translate = create_translate(
        load_model(checkpoint),
        Tokenizer.load_directory(checkpoint),
        SearchOptions(beam_size=beam_size),
        batch_size=128,
    )
    answers = translate(strings)
    right = sum(answer == text[::-1] for answer, text in zip(answers, strings, strict=True))
    assert right / len(strings) >= 0.99


def test_loss_falls_in_the_log(trained: tuple[Path, list[str]]) -> None:
    run_folder, _ = trained
    lines = (run_folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    losses = [event["nll"] for event in events if event["event"] == "step"]
    assert len(losses) == 6
    assert losses[-1] < 0.2 * losses[0]
