"""Text for int8: a sample of it, tokenized as the server would, and one message for everything that cannot be."""

from __future__ import annotations

import argparse
import gzip
import lzma
from collections import Counter
from pathlib import Path

import pytest
import torch

from commands import calibration_text, export
from commands.calibration_text import measure_on_text, sample_lines
from commands.errors import CommandError
from export.bundle import load_bundle
from export.calibration import load_ranges, measure_ranges, save_ranges
from export.errors import ExportError
from model.checkpoint import load_model
from model.tokenizer import Tokenizer
from tests.tiny_bundles import make_checkpoint
from tests.tiny_models import make_model

LINES = ("the cat", "the rain on the mat", "a small cat sat")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("calibration") / "checkpoint")


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def parse(tmp_path: Path, checkpoint: Path, *words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    facts = ["--source", "en", "--target", "pt", "--license", "MIT"]
    return parser.parse_args([str(checkpoint), str(tmp_path / "bundle"), *facts, *map(str, words)])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What the model is asked to translate."""
    seen: list[list[int]] = []
    monkeypatch.setattr(
        "export.calibration.measure_ranges", lambda _, sources: seen.extend(sources)
    )
    return seen


def encode(checkpoint: Path, *lines: str) -> list[list[int]]:
    return Tokenizer.load_directory(checkpoint).encode_source_batch(list(lines))


def test_few_lines_are_all_taken_in_order() -> None:
    assert sample_lines(["a", "b"], 5) == ["a", "b"]
    assert sample_lines([], 5) == []


def test_a_sample_is_spread_over_the_text_and_the_same_every_time() -> None:
    lines = [str(number) for number in range(100_000)]
    sample = sample_lines(iter(lines), 500)
    assert sample == sample_lines(lines, 500)
    assert len(set(sample)) == 500
    tenths = Counter(int(line) // 10_000 for line in sample)
    assert all(25 < tenths[tenth] < 85 for tenth in range(10))


def test_sources_are_read_from_plain_and_packed_text_and_from_pairs(
    tmp_path: Path, checkpoint: Path, measured: list[list[int]]
) -> None:
    plain = write(tmp_path / "a.txt", LINES[0], "", "  ")
    pairs = tmp_path / "a.tsv.xz"
    pairs.write_bytes(lzma.compress(f"{LINES[1]}\tum gato\n\to gato\n".encode()))
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(f"{LINES[2]}\tx\ty\n".encode()))
    measure_on_text(checkpoint, [plain, pairs, packed], 50)
    assert measured == encode(checkpoint, *LINES)


def test_lines_that_the_server_would_split_are_left_out(
    tmp_path: Path, checkpoint: Path, measured: list[list[int]]
) -> None:
    lengths = [len(ids) for ids in encode(checkpoint, *LINES)]
    measure_on_text(checkpoint, [write(tmp_path / "a", *LINES)], lengths[0])
    assert measured == encode(checkpoint, LINES[0])
    assert lengths[0] < min(lengths[1:])


def test_a_long_text_is_cut_down_to_a_sample(
    tmp_path: Path,
    checkpoint: Path,
    measured: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibration_text, "NUM_LINES", 7)
    measure_on_text(checkpoint, [write(tmp_path / "a", *LINES * 10)], 50)
    assert len(measured) == 7


@pytest.mark.parametrize("lines", [(), ("", "\tum gato"), ("the cat " * 30,)])
def test_text_without_a_line_to_use_is_one_message(
    tmp_path: Path, checkpoint: Path, lines: tuple[str, ...]
) -> None:
    with pytest.raises(CommandError, match="has no line of 1 to 19 tokens"):
        measure_on_text(checkpoint, [write(tmp_path / "a", *lines)], 20)


def test_text_that_is_not_utf8_and_a_checkpoint_that_is_none_are_one_message(
    tmp_path: Path, checkpoint: Path
) -> None:
    (tmp_path / "a").write_bytes(b"the cat\n\xff\n")
    with pytest.raises(CommandError, match="a:2: "):
        measure_on_text(checkpoint, [tmp_path / "a"], 20)
    with pytest.raises(CommandError, match="nothing"):
        measure_on_text(tmp_path / "nothing", [write(tmp_path / "b", *LINES)], 20)


def test_a_model_of_few_positions_takes_only_lines_that_it_can_read(tmp_path: Path) -> None:
    fields = {"positional_encoding": "learned", "max_positions": 12}
    checkpoint = make_checkpoint(tmp_path / "checkpoint", **fields)
    text = write(tmp_path / "a", *LINES, "the cat " * 9)
    assert measure_on_text(checkpoint, [text], 12).hidden > 0
    with pytest.raises(ExportError, match="but the model learned 12 positions"):
        measure_on_text(checkpoint, [text], 30)
    with pytest.raises(CommandError, match="but the model learned 12"):
        export.run(parse(tmp_path, checkpoint, "--calibration-text", text))


def test_ranges_that_exist_text_for_them_and_float32_do_not_go_together(
    tmp_path: Path, checkpoint: Path
) -> None:
    path = write(tmp_path / "a", *LINES)
    for words, message in (
        (("--calibration", path, "--calibration-text", path), "either --calibration or text"),
        (("--calibration", path, "--precision", "float32"), "for --precision int8 only"),
        (("--calibration-text", path, "--precision", "float32"), "for --precision int8 only"),
        (("--calibration", tmp_path / "nothing"), "there is no file"),
        (("--calibration-text", path, "--calibration-text", tmp_path), "there is no file"),
    ):
        with pytest.raises(CommandError, match=message) as info:
            export.run(parse(tmp_path, checkpoint, *words))
        assert info.value.exit_code == 2
    assert not (tmp_path / "bundle").exists()


def test_ranges_that_are_none_or_of_another_model_are_one_message(
    tmp_path: Path, checkpoint: Path
) -> None:
    for words, message in (
        ((write(tmp_path / "a", "no tensors"),), "holds no activation ranges"),
        ((checkpoint / "model.safetensors",), "holds no activation ranges"),
    ):
        with pytest.raises(CommandError, match=message):
            export.run(parse(tmp_path, checkpoint, "--calibration", *words))
    other = tmp_path / "other"
    save_ranges(other, measure_ranges(make_model(d_ff=64, decoder_layers=2)))
    with pytest.raises(CommandError, match=r"no layer `decoder.layers.1") as info:
        export.run(parse(tmp_path, checkpoint, "--calibration", other))
    assert "\n" not in str(info.value)
    assert not (tmp_path / "bundle").exists()


def test_a_bundle_holds_the_ranges_and_they_make_the_same_bundle_again(
    tmp_path: Path, checkpoint: Path
) -> None:
    text = write(tmp_path / "a", *LINES)
    assert export.run(parse(tmp_path, checkpoint, "--calibration-text", text)) == 0
    first = load_bundle(tmp_path / "bundle").manifest.files
    ranges = load_ranges(tmp_path / "bundle/calibration.safetensors")
    expected = measure_ranges(load_model(checkpoint).eval(), encode(checkpoint, *LINES))
    assert ranges.inputs.keys() == expected.inputs.keys()
    for name, magnitudes in ranges.inputs.items():
        assert torch.equal(magnitudes, expected.inputs[name])

    saved = tmp_path / "calibration.safetensors"
    (tmp_path / "bundle/calibration.safetensors").rename(saved)
    assert export.run(parse(tmp_path, checkpoint, "--calibration", saved)) == 0
    assert load_bundle(tmp_path / "bundle").manifest.files == first
