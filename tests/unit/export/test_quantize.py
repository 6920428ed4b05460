from __future__ import annotations

import pytest
import torch

from export.quantize import Int8Layers, quantize_rows
from export.smoothing import FixedInput
from tests import eager_operators


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
    found = Int8Layers(1.0).linear(weight, bias, rectify=rectify)(x)
    expected = (x.relu() if rectify else x) @ weight.t() + bias
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@torch.no_grad()
def test_a_row_gets_the_same_bits_beside_a_much_larger_one() -> None:
    layer = Int8Layers(1.0).linear(random(8, 64), random(8, seed=1))
    small = random(1, 64, seed=2) * 1e-3
    beside = layer(torch.cat((small, random(1, 64, seed=3) * 1e3)))[:1]
    assert torch.equal(layer(small), beside)


@torch.no_grad()
def test_a_row_of_zeros_gives_the_bias() -> None:
    bias = random(8, seed=1)
    for rectify in (False, True):
        layer = Int8Layers(1.0).linear(random(8, 64), bias, rectify=rectify)
        assert torch.equal(layer(torch.zeros(1, 64))[0], bias)


@torch.no_grad()
def test_a_row_of_negative_numbers_is_rectified_to_the_bias() -> None:
    bias = random(8, seed=1)
    layer = Int8Layers(1.0).linear(random(8, 64), bias, rectify=True)
    assert torch.equal(layer(-random(1, 64).abs())[0], bias)


SOURCE = torch.nn.Linear(64, 8)
"""Stands for a layer of a model, by which a scale is found."""


@torch.no_grad()
@pytest.mark.parametrize("rectify", [False, True])
def test_where_the_range_is_known_the_scale_is_fixed(rectify: bool) -> None:
    layers = Int8Layers(1.0, {SOURCE: FixedInput(4.0)})
    weight, bias, x = random(8, 64), random(8, seed=1), random(5, 64, seed=2)
    layer = layers.linear(weight, bias, rectify=rectify, source=SOURCE)
    expected = (x.relu() if rectify else x) @ weight.t() + bias
    assert (layer(x) - expected).abs().max() < 0.04 * expected.abs().max()
    assert torch.equal(layer(torch.full((1, 64), 9.0)), layer(torch.full((1, 64), 4.0)))
    least = 0.0 if rectify else -4.0 * 128 / 127  # zero stands in the middle of 256 levels
    assert torch.equal(layer(torch.full((1, 64), -9.0)), layer(torch.full((1, 64), least)))


@torch.no_grad()
def test_a_layer_of_another_input_has_scales_of_its_own() -> None:
    weight, bias, x = random(8, 64), random(8, seed=1), random(5, 64, seed=2)
    layers = Int8Layers(1.0, {SOURCE: FixedInput(0.1)})
    other = layers.linear(weight, bias, source=torch.nn.Linear(64, 8))
    assert torch.equal(other(x), Int8Layers(1.0).linear(weight, bias)(x))
    assert not torch.allclose(layers.linear(weight, bias, source=SOURCE)(x), other(x), atol=1.0)


@torch.no_grad()
def test_uneven_channels_are_divided_before_they_are_rounded() -> None:
    weight, bias, x = random(8, 64), random(8, seed=1), random(5, 64, seed=2)
    sizes = torch.logspace(-2, 2, 64)
    x, weight = x * sizes, weight / sizes
    expected = x @ weight.t() + bias
    largest = x.abs().max().item()
    coarse = Int8Layers(1.0, {SOURCE: FixedInput(largest)})
    fine = Int8Layers(1.0, {SOURCE: FixedInput((x / sizes).abs().max().item(), sizes)})
    errors = [
        (layers.linear(weight, bias, source=SOURCE)(x) - expected).abs().max().item()
        for layers in (coarse, fine)
    ]
    assert errors[1] < 0.02 * expected.abs().max()
    assert errors[1] < 0.1 * errors[0]


@torch.no_grad()
@pytest.mark.parametrize("fixed", [FixedInput(2.0), FixedInput(2.0, torch.logspace(-1, 1, 64))])
def test_with_a_fixed_scale_a_row_gets_the_same_bits_in_any_company(fixed: FixedInput) -> None:
    layers = Int8Layers(1.0, {SOURCE: fixed})
    layer = layers.linear(random(8, 64), random(8, seed=1), source=SOURCE)
    row, others = random(1, 64, seed=2), 1e3 * random(6, 64, seed=3)
    alone = layer(row)
    assert torch.equal(layer(torch.cat((others, row)))[-1:], alone)
    assert torch.equal(layer(torch.cat((row, others)).reshape(1, 7, 64))[0, :1], alone)


@torch.no_grad()
@pytest.mark.parametrize("source", [None, SOURCE])
def test_parallel_products_are_those_of_single_layers(source: torch.nn.Module | None) -> None:
    layers = Int8Layers(1.0, {SOURCE: FixedInput(3.0, torch.logspace(-1, 1, 64))})
    weights, biases = [random(8, 64), random(4, 64, seed=1)], [random(8), random(4)]
    x = random(3, 64, seed=2)
    found = layers.parallel(weights, biases, source=source)(x)
    for output, weight, bias in zip(found, weights, biases, strict=True):
        assert torch.equal(output, layers.linear(weight, bias, source=source)(x))


@torch.no_grad()
def test_an_embedding_and_the_vocabulary_share_one_table() -> None:
    layers, table = Int8Layers(4.0), random(30, 16)
    embedding, vocabulary = layers.embedding(table), layers.vocabulary(table, torch.zeros(30))
    assert torch.equal(embedding.weight, vocabulary.weight)
    x = embedding(torch.tensor([[3, 4]]), torch.tensor(1.0))[0]
    assert (x - table[[3, 4]]).abs().max() < 0.02
    assert (vocabulary(x) - x @ table.t()).abs().max() < 0.5
