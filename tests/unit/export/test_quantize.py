from __future__ import annotations

import pytest
import torch

from export.calibration import ActivationRanges, activation_ranges
from export.quantize import Int8Layers, quantize_rows
from tests import eager_operators
from tests.tiny_models import make_model


@pytest.fixture(autouse=True)
def runtime_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx.ops, "symbolic", eager_operators.symbolic)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_quantized_matrix_is_within_half_a_level_of_the_matrix() -> None:
    weight = random(7, 50)
    weight[3] *= 1000
    rounded, scales = quantize_rows(weight)
    assert rounded.dtype == torch.int8
    assert rounded.abs().amax(1).tolist() == [127] * 7
    error = (rounded * scales[:, None] - weight).abs()
    assert (error <= scales[:, None] * 0.501).all()


def test_a_row_of_zeros_is_quantized_to_zeros() -> None:
    rounded, scales = quantize_rows(torch.zeros(2, 5))
    assert not rounded.any()
    assert (scales > 0).all()


@torch.no_grad()
@pytest.mark.parametrize("rectify", [False, True])
def test_a_linear_layer_is_close_to_its_product(rectify: bool) -> None:
    weight, bias, x = random(8, 64), random(8, seed=1), random(5, 64, seed=2)
    found = Int8Layers(ActivationRanges(1.0)).linear(weight, bias, rectify=rectify)(x)
    expected = (x.relu() if rectify else x) @ weight.t() + bias
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@torch.no_grad()
def test_a_row_gets_the_same_bits_beside_a_much_larger_one() -> None:
    layer = Int8Layers(ActivationRanges(1.0)).linear(random(8, 64), random(8, seed=1))
    small = random(1, 64, seed=2) * 1e-3
    beside = layer(torch.cat((small, random(1, 64, seed=3) * 1e3)))[:1]
    assert torch.equal(layer(small), beside)


@torch.no_grad()
def test_a_row_of_zeros_gives_the_bias() -> None:
    bias = random(8, seed=1)
    for rectify in (False, True):
        layer = Int8Layers(ActivationRanges(1.0)).linear(random(8, 64), bias, rectify=rectify)
        assert torch.equal(layer(torch.zeros(1, 64))[0], bias)


@torch.no_grad()
def test_a_row_of_negative_numbers_is_rectified_to_the_bias() -> None:
    bias = random(8, seed=1)
    layer = Int8Layers(ActivationRanges(1.0)).linear(random(8, 64), bias, rectify=True)
    assert torch.equal(layer(-random(1, 64).abs())[0], bias)


@torch.no_grad()
def test_where_the_range_is_known_the_scale_is_fixed() -> None:
    source = torch.nn.Linear(64, 8)
    layers = Int8Layers(ActivationRanges(1.0, {source: 4.0}))
    weight, bias, x = random(8, 64), random(8, seed=1), random(5, 64, seed=2)
    expected = x @ weight.t() + bias
    found = layers.linear(weight, bias, source=source)(x)
    assert (found - expected).abs().max() < 0.04 * expected.abs().max()
    cut = layers.linear(weight, bias, source=source)(torch.full((1, 64), 9.0))
    whole = layers.linear(weight, bias, source=source)(torch.full((1, 64), 4.0))
    assert torch.equal(cut, whole)


@torch.no_grad()
def test_parallel_products_are_those_of_single_layers() -> None:
    layers = Int8Layers(ActivationRanges(1.0))
    weights, biases = [random(8, 64), random(4, 64, seed=1)], [random(8), random(4)]
    x = random(3, 64, seed=2)
    found = layers.parallel(weights, biases)(x)
    for output, weight, bias in zip(found, weights, biases, strict=True):
        assert torch.equal(output, layers.linear(weight, bias)(x))


@torch.no_grad()
def test_an_embedding_and_the_vocabulary_share_one_table() -> None:
    layers, table = Int8Layers(ActivationRanges(4.0)), random(30, 16)
    embedding, vocabulary = layers.embedding(table), layers.vocabulary(table, torch.zeros(30))
    assert torch.equal(embedding.weight, vocabulary.weight)
    x = embedding(torch.tensor([[3, 4]]))[0]
    assert (x - table[[3, 4]]).abs().max() < 0.02
    assert (vocabulary(x) - x @ table.t()).abs().max() < 0.5


@torch.no_grad()
def test_the_fixed_ranges_hold_what_the_model_gives() -> None:
    model = make_model(source_vocab_size=50, target_vocab_size=50, encoder_layers=2)
    ranges = activation_ranges(model)
    assert ranges == activation_ranges(model)
    source = torch.arange(3, 20)[None]
    mask = torch.ones_like(source, dtype=torch.bool)
    memory = model.encode(source, mask)
    hidden = model.decode(torch.arange(10, 40)[None], memory, mask)
    assert 0.5 * ranges.hidden < hidden.abs().max() < 1.2 * ranges.hidden
    assert set(ranges.inputs) == {
        layer.feed_forward.linear_in for layer in (*model.encoder.layers, *model.decoder.layers)
    }
    assert all(value > 1.0 for value in ranges.inputs.values())
