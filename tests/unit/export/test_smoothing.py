"""Evened out channels: an equal model, and scales that hold what was measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from export.calibration import ActivationRanges, measure_ranges
from export.smoothing import FixedInput, smooth
from model.transformer import Transformer
from tests.tiny_models import make_model

VOCAB = 40
SOURCES = tuple(
    [
        *torch.randint(
            3, VOCAB, (length,), generator=torch.Generator().manual_seed(length)
        ).tolist(),
        2,
    ]
    for length in (3, 5, 8, 13)
)
CONFIGS: dict[str, dict[str, Any]] = {
    "the paper": {},
    "pre-norm": {"norm_order": "pre", "final_norm": True},
    "no biases": {"attention_bias": False},
    "silu": {"activation": "silu", "tie_embeddings": "none"},
    "gelu, pre-norm": {"activation": "gelu", "norm_order": "pre", "attention_bias": False},
}

each_config = pytest.mark.parametrize("name", CONFIGS)


def make_uneven(name: str) -> Transformer:
    """A model with some channels that are much larger than others, and with biases that are not 0."""
    sizes = {"source_vocab_size": VOCAB, "target_vocab_size": VOCAB, "encoder_layers": 2}
    model = make_model(**sizes, decoder_layers=2, **CONFIGS[name])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear) and module is not model.output_projection:
                module.weight[::5] *= 6
                if module.bias is not None:
                    module.bias.normal_(std=0.3, generator=generator)
            if isinstance(module, nn.LayerNorm):
                module.weight[::7] *= 8
    return model


@torch.no_grad()
def logits_of(model: Transformer) -> Tensor:
    source = torch.tensor([SOURCES[3], [*SOURCES[2], 0, 0, 0, 0, 0]])
    targets = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(5))
    return model(source, torch.arange(14) < torch.tensor([[14], [9]]), targets)


def smoothed_by(
    model: Transformer, ranges: ActivationRanges
) -> tuple[Transformer, dict[nn.Module, FixedInput]]:
    found = smooth(model, ranges)
    return found.transformer, found.fixed


def named(model: Transformer, fixed: dict[nn.Module, FixedInput]) -> dict[str, FixedInput]:
    names = {module: name for name, module in model.named_modules()}
    return {names[module]: scale for module, scale in fixed.items()}


def unevenness(magnitudes: Tensor) -> float:
    """The largest over the geometric mean, of channels that are used at all."""
    used = magnitudes[magnitudes > 0.01 * magnitudes.max()]
    return (used.max() / used.log().mean().exp()).item()


@each_config
@pytest.mark.parametrize("sources", [(), SOURCES])
@torch.no_grad()
def test_a_smoothed_model_computes_the_same(name: str, sources: tuple[list[int], ...]) -> None:
    """What is left to divide is divided here, where layers read."""
    model = make_uneven(name)
    smoothed, fixed = smoothed_by(model, measure_ranges(model, sources))
    for layer, scale in fixed.items():
        if scale.factors is not None:
            layer.weight.mul_(scale.factors)
            layer.register_forward_pre_hook(
                lambda _, inputs, factors=scale.factors: inputs[0] / factors
            )
    expected = logits_of(model)
    torch.testing.assert_close(logits_of(smoothed), expected, atol=1e-3, rtol=1e-3)
    assert any(scale.factors is not None for scale in fixed.values())


@each_config
@torch.no_grad()
def test_what_layers_take_over_from_each_other_changes_nothing(name: str) -> None:
    model = make_uneven(name)
    smoothed, _ = smoothed_by(model, measure_ranges(model, SOURCES))
    torch.testing.assert_close(logits_of(smoothed), logits_of(model), atol=1e-3, rtol=1e-3)
    value, same = (
        each.decoder.layers[1].cross_attention.value_proj.weight for each in (smoothed, model)
    )
    assert not torch.allclose(value, same)


@each_config
def test_the_given_model_is_untouched_and_tied_tables_stay_tied(name: str) -> None:
    model = make_uneven(name)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    smoothed, fixed = smoothed_by(model, measure_ranges(model, SOURCES))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    tied = model.output_projection.weight is model.target_embedding.weight
    assert (smoothed.output_projection.weight is smoothed.target_embedding.weight) == tied
    assert not set(fixed) & set(model.modules())


@each_config
def test_scales_hold_all_that_was_measured(name: str) -> None:
    """Of the smoothed model too, whose activations are what the scales are for."""
    model = make_uneven(name)
    smoothed, fixed = smoothed_by(model, measure_ranges(model, SOURCES))
    again = measure_ranges(smoothed, SOURCES).inputs
    scales = named(smoothed, fixed)
    assert scales.keys() == again.keys()
    for layer, scale in scales.items():
        factors = torch.ones_like(again[layer]) if scale.factors is None else scale.factors
        reached = (again[layer] / factors).max().item()
        assert reached == pytest.approx(scale.largest, rel=1e-3), layer


@each_config
def test_channels_are_evened_out_and_weights_do_not_explode(name: str) -> None:
    model = make_uneven(name)
    ranges = measure_ranges(model, SOURCES)
    smoothed, fixed = smoothed_by(model, ranges)
    again = measure_ranges(smoothed, SOURCES).inputs
    for layer, scale in named(smoothed, fixed).items():
        factors = torch.ones_like(again[layer]) if scale.factors is None else scale.factors
        assert unevenness(again[layer] / factors) < 1.05 * unevenness(ranges.inputs[layer]), layer
        if scale.factors is not None:
            assert scale.factors.log().mean().item() == pytest.approx(0, abs=1e-3)
    first = "encoder.layers.1.feed_forward.linear_in"
    scale = named(smoothed, fixed)[first]
    assert scale.factors is not None
    assert unevenness(again[first] / scale.factors) < 0.5 * unevenness(ranges.inputs[first])


def test_layers_that_read_the_same_share_their_factors() -> None:
    model = make_uneven("the paper")
    smoothed, fixed = smoothed_by(model, measure_ranges(model, SOURCES))
    attention = smoothed.encoder.layers[0].self_attention
    readers = [attention.query_proj, attention.key_proj, attention.value_proj]
    assert len({id(fixed[reader].factors) for reader in readers}) == 1
    cross = [layer.cross_attention for layer in smoothed.decoder.layers]
    memory = [layer for each in cross for layer in (each.key_proj, each.value_proj)]
    assert len({id(fixed[reader].factors) for reader in memory}) == 1
    assert fixed[memory[0]].factors is not fixed[readers[0]].factors


def test_relu_lets_a_division_through_and_others_do_not() -> None:
    for name, costs_nothing in (("the paper", True), ("silu", False)):
        model = make_uneven(name)
        smoothed, fixed = smoothed_by(model, measure_ranges(model, SOURCES))
        scale = fixed[smoothed.encoder.layers[0].feed_forward.linear_out]
        assert (scale.factors is None) == costs_nothing


def test_layers_without_a_range_have_no_fixed_scale() -> None:
    model = make_uneven("the paper")
    ranges = measure_ranges(model, SOURCES)
    of_encoder = {name: each for name, each in ranges.inputs.items() if name.startswith("encoder")}
    smoothed, fixed = smoothed_by(model, ActivationRanges(ranges.hidden, of_encoder))
    assert named(smoothed, fixed).keys() == of_encoder.keys()
    for key, tensor in smoothed.decoder.state_dict().items():
        assert torch.equal(tensor, model.decoder.state_dict()[key])
    assert smooth(model, ActivationRanges(1.0, {})).fixed == {}


@torch.no_grad()
def test_channels_that_are_never_used_stay_finite() -> None:
    model = make_uneven("the paper")
    network = model.encoder.layers[0].feed_forward
    network.linear_in.bias[:4] = -1e4  # never positive
    network.linear_out.weight[:, 2:6] = 0  # never read
    model.encoder.layers[1].self_attention.value_proj.weight.zero_()
    model.encoder.layers[1].self_attention.value_proj.bias.zero_()
    smoothed, fixed = smoothed_by(model, measure_ranges(model, SOURCES))
    assert all(tensor.isfinite().all() for tensor in smoothed.state_dict().values())
    assert all(scale.largest > 0 for scale in fixed.values())
    torch.testing.assert_close(logits_of(smoothed), logits_of(model), atol=1e-3, rtol=1e-3)


@each_config
@torch.no_grad()
def test_what_self_attention_keeps_is_as_large_as_it_is_said_to_be(name: str) -> None:
    model = make_uneven(name)
    ranges = measure_ranges(model, SOURCES)
    assert len(ranges.kept) == 2 * model.config.decoder_layers
    found = smooth(model, ranges)
    names = {module: name for name, module in found.transformer.named_modules()}
    again = measure_ranges(found.transformer, SOURCES).kept
    for module, largest in found.kept.items():
        torch.testing.assert_close(largest, again[names[module]], rtol=1e-3, atol=1e-4)
