"""The page about training names every key with its default, and its example can be read."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from model.config import TransformerConfig
from model.train_config import DataSection, TokenizerSection, TrainingSection
from model.train_config_file import load_train_config

PAGE = Path(__file__).parents[3] / "docs" / "training.md"
FROM_TOKENIZER = {"source_vocab_size", "target_vocab_size", "pad_id", "bos_id", "eos_id"}
WORDS = {"required": dataclasses.MISSING, "none": None}


def _documented(section: str) -> dict[str, Any]:
    text = PAGE.read_text(encoding="utf-8").split(f"### [{section}]")[1].split("###")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", text, re.MULTILINE)
    return {
        key: WORDS[value] if value in WORDS else tomllib.loads(f"value = {value}")["value"]
        for key, value in rows
    }


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("model", TransformerConfig),
        ("tokenizer", TokenizerSection),
        ("data", DataSection),
        ("training", TrainingSection),
    ],
)
def test_every_key_stands_there_with_its_default(name: str, section: type[Any]) -> None:
    defaults = {
        field.name: None if field.default == () else field.default
        for field in dataclasses.fields(section)
        if field.name not in FROM_TOKENIZER
    }
    assert _documented(name) == defaults


def test_example_can_be_read(tmp_path: Path) -> None:
    example = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    for file in ("train.tsv.xz", "more.en", "more.pt", "valid.tsv"):
        (tmp_path / file).touch()
    (tmp_path / "en-pt.toml").write_text(example, encoding="utf-8")
    config = load_train_config(tmp_path / "en-pt.toml")
    assert len(config.data.train) == 2
    assert config.model.fields["decoder_layers"] == 2
