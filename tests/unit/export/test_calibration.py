"""What goes into each layer while a model translates: real positions only, of real text or random words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from export.calibration import (
    ActivationRanges,
    load_ranges,
    measure_ranges,
    range_faults,
    save_ranges,
)
from export.errors import ExportError
from model.generate import SearchOptions, beam_search
from model.transformer import Transformer
from tests.tiny_models import make_model

EOS = 2
SOURCES = ([5, 6, 7, 8, 9, 10, EOS], [4, EOS], [11, 5, 3, EOS], [9, 9, 9, EOS])
IN_ENCODER = "encoder.layers.0.feed_forward.linear_in"
IN_DECODER = "decoder.layers.0.feed_forward.linear_in"


def make_translator(**fields: object) -> Transformer:
    """A model that says other words than the last one again."""
    sizes = {"source_vocab_size": 30, "target_vocab_size": 30, "spread": 4.0}
    return make_model(**{**sizes, "tie_embeddings": "none", **fields})


def seen_one_by_one(model: Transformer) -> dict[str, Tensor]:
    """The largest inputs, one sentence and no padding at a time, targets cut off behind their EOS."""
    largest: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[[object, tuple[Tensor, ...]], None]:
        def note(_: object, inputs: tuple[Tensor, ...]) -> None:
            found = inputs[0].abs().amax((0, 1))
            largest[name] = torch.maximum(largest.get(name, found), found)

        return note

    targets = [greedy(model, source) for source in SOURCES]
    handles = [
        module.register_forward_pre_hook(watch(name))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    with torch.no_grad():
        for source, target in zip(SOURCES, targets, strict=True):
            ids = torch.tensor([source])
            inputs = torch.tensor([[model.config.bos_id, *target]])
            model(ids, torch.ones_like(ids, dtype=torch.bool), inputs)
    for handle in handles:
        handle.remove()
    return largest


def greedy(model: Transformer, source: list[int]) -> tuple[int, ...]:
    (best,) = beam_search(model, source, SearchOptions(beam_size=1, max_target_tokens=256))
    assert not best.truncated
    return best.token_ids


def assert_same(found: ActivationRanges, expected: ActivationRanges) -> None:
    assert found.hidden == expected.hidden
    assert found.inputs.keys() == expected.inputs.keys()
    assert all(torch.equal(found.inputs[name], expected.inputs[name]) for name in found.inputs)


@pytest.mark.parametrize(("norm_order", "seed"), [("post", 26), ("pre", 36)])
def test_neither_padding_nor_what_follows_the_end_counts(norm_order: str, seed: int) -> None:
    model = make_translator(norm_order=norm_order, seed=seed)
    lengths = {len(greedy(model, source)) for source in SOURCES}
    assert len(lengths) > 1  # some rows of the batch go on behind the end of others
    found, expected = measure_ranges(model, SOURCES), seen_one_by_one(model)
    expected_hidden = expected.pop("output_projection")
    assert found.inputs.keys() == expected.keys()
    for name, magnitudes in found.inputs.items():
        torch.testing.assert_close(magnitudes, expected[name], msg=name)
    assert found.hidden == pytest.approx(expected_hidden.max().item(), rel=1e-5)


def test_sentences_of_one_token_are_told_from_decoder_steps() -> None:
    model = make_translator()
    found = measure_ranges(model, [[EOS], [EOS]])
    with torch.no_grad():
        embedded = model.source_embedding(torch.tensor([[EOS]]))[0, 0].abs()
    first = found.inputs["encoder.layers.0.self_attention.query_proj"]
    torch.testing.assert_close(first, embedded)
    assert "decoder.layers.0.self_attention.output_proj" in found.inputs


def test_more_sentences_than_fit_in_a_batch_are_all_seen() -> None:
    model = make_translator(seed=26)  # which ends its sentences, so their company does not matter
    few = measure_ranges(model, SOURCES)
    many = measure_ranges(model, SOURCES * 40)
    for name, magnitudes in many.inputs.items():
        torch.testing.assert_close(magnitudes, few.inputs[name], msg=name)


def test_with_text_every_layer_is_measured() -> None:
    model = make_translator(encoder_layers=2)
    found = measure_ranges(model, SOURCES)
    layers = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert found.inputs.keys() == layers - {"output_projection"}
    assert not [*range_faults(found, model)]


def test_without_text_only_what_norms_and_embeddings_bound_is_measured() -> None:
    found = measure_ranges(make_translator())
    assert IN_ENCODER in found.inputs
    assert "decoder.layers.0.cross_attention.key_proj" in found.inputs
    assert not [name for name in found.inputs if name.endswith(("output_proj", "linear_out"))]


def test_without_text_a_memory_that_no_norm_bounds_is_left_out() -> None:
    for final_norm in (False, True):
        model = make_translator(norm_order="pre", final_norm=final_norm)
        found = measure_ranges(model)
        assert ("decoder.layers.0.cross_attention.key_proj" in found.inputs) == final_norm
        assert "decoder.layers.0.cross_attention.query_proj" in found.inputs


@torch.no_grad()
def test_random_words_show_the_range_of_other_words() -> None:
    model = make_model(source_vocab_size=50, target_vocab_size=50, encoder_layers=2)
    ranges = measure_ranges(model)
    source = torch.arange(3, 20)[None]
    mask = torch.ones_like(source, dtype=torch.bool)
    hidden = model.decode(torch.arange(10, 40)[None], model.encode(source, mask), mask)
    assert 0.5 * ranges.hidden < hidden.abs().max() < 1.2 * ranges.hidden
    assert all(magnitudes.max() > 1.0 for magnitudes in ranges.inputs.values())


@pytest.mark.parametrize("sources", [(), SOURCES])
def test_measuring_is_reproducible_and_leaves_the_model_alone(sources: object) -> None:
    model = make_translator()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = measure_ranges(model, sources)  # type: ignore[arg-type]
    assert_same(measure_ranges(model, sources), first)  # type: ignore[arg-type]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(tensor.requires_grad for tensor in first.inputs.values())


def test_the_order_of_sentences_does_not_matter() -> None:
    model = make_translator()
    assert_same(measure_ranges(model, SOURCES[::-1]), measure_ranges(model, SOURCES))


def test_a_model_of_few_learned_positions_is_measured_within_them() -> None:
    model = make_translator(positional_encoding="learned", max_positions=7, position_offset=2)
    assert measure_ranges(model).hidden > 0
    assert measure_ranges(model, SOURCES).hidden > 0
    with pytest.raises(ExportError, match="8 tokens, but the model learned 7 positions"):
        measure_ranges(model, [*SOURCES, [3, 3, 3, 3, 3, 3, 3, EOS]])


def test_an_empty_sentence_is_refused() -> None:
    with pytest.raises(ExportError, match="must have tokens"):
        measure_ranges(make_translator(), [[4, EOS], []])


def test_ranges_survive_a_file(tmp_path: Path) -> None:
    ranges = measure_ranges(make_translator(), SOURCES)
    save_ranges(tmp_path / "a", ranges)
    save_ranges(tmp_path / "b", load_ranges(tmp_path / "a"))
    loaded = load_ranges(tmp_path / "b")
    assert loaded.hidden == pytest.approx(ranges.hidden)
    assert loaded.inputs.keys() == ranges.inputs.keys()
    assert all(torch.equal(loaded.inputs[name], ranges.inputs[name]) for name in ranges.inputs)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_of_other_precision_is_read_as_float32(tmp_path: Path) -> None:
    doubles = {"hidden": torch.ones(1).double(), IN_ENCODER: torch.rand(16).double()}
    save_file(doubles, tmp_path / "a")
    loaded = load_ranges(tmp_path / "a")
    assert loaded.inputs[IN_ENCODER].dtype == torch.float32
    assert not [*range_faults(loaded, make_translator())]


@pytest.mark.parametrize(
    "tensors",
    [
        {IN_ENCODER: torch.rand(16)},
        {"hidden": torch.rand(3), IN_ENCODER: torch.rand(16)},
        {"hidden": torch.rand(0)},
    ],
)
def test_tensors_of_something_else_are_refused(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, tmp_path / "a")
    with pytest.raises(ExportError, match=r"holds no activation ranges: `hidden` must be one"):
        load_ranges(tmp_path / "a")


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\xff" * 100])
def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ExportError, match="holds no activation ranges"):
        load_ranges(tmp_path / "a")
    with pytest.raises(ExportError, match="holds no activation ranges"):
        load_ranges(tmp_path / "nothing")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    save_ranges(tmp_path / "a", measure_ranges(make_translator()))
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[:-1])
    with pytest.raises(ExportError, match="holds no activation ranges"):
        load_ranges(tmp_path / "a")


@pytest.mark.parametrize(
    ("magnitudes", "fault"),
    [
        (torch.rand(17), r"has 16 inputs, not \(17,\)"),
        (torch.rand(1, 16), r"has 16 inputs, not \(1, 16\)"),
        (torch.tensor(1.0), r"has 16 inputs, not \(\)"),
        (torch.full((16,), math.nan), "negative or no number"),
        (torch.full((16,), math.inf), "negative or no number"),
        (torch.arange(16) - 1.0, "negative or no number"),
    ],
)
def test_magnitudes_that_cannot_be_are_named(magnitudes: Tensor, fault: str) -> None:
    ranges = ActivationRanges(1.0, {IN_DECODER: magnitudes})
    (found,) = range_faults(ranges, make_translator())
    assert IN_DECODER in found
    assert re.search(fault, found)


def test_ranges_of_another_model_are_named() -> None:
    ranges = measure_ranges(make_translator(decoder_layers=2), SOURCES)
    faults = [*range_faults(ranges, make_translator())]
    assert faults
    assert all("has no layer `decoder.layers.1." in fault for fault in faults)


@pytest.mark.parametrize("hidden", [0.0, -1.0, math.nan, math.inf])
def test_a_range_of_the_output_that_cannot_be_is_named(hidden: float) -> None:
    (fault,) = range_faults(ActivationRanges(hidden, {}), make_translator())
    assert "is no magnitude of the decoder's output" in fault
