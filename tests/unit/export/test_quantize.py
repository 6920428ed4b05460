from __future__ import annotations

import pytest
import torch

from export.calibration import hidden_range
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
@pytest.mark.parametrize("non_negative", [False, True])
def test_a_linear_layer_is_close_to_its_product(non_negative: bool) -> None:
    weight, bias, x = random(8, 64), random(8, seed=1), random(5, 64, seed=2)
    if non_negative:
        x = x.relu()
    found = Int8Layers(1.0).linear(weight, bias, non_negative)(x)
    expected = x @ weight.t() + bias
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
    for non_negative in (False, True):
        layer = Int8Layers(1.0).linear(random(8, 64), bias, non_negative)
        assert torch.equal(layer(torch.zeros(1, 64))[0], bias)


@torch.no_grad()
def test_parallel_products_are_those_of_single_layers() -> None:
    layers = Int8Layers(1.0)
    weights, biases = [random(8, 64), random(4, 64, seed=1)], [random(8), random(4)]
    x = random(3, 64, seed=2)
    found = layers.parallel(weights, biases)(x)
    for output, weight, bias in zip(found, weights, biases, strict=True):
        assert torch.equal(output, layers.linear(weight, bias)(x))


@torch.no_grad()
def test_an_embedding_and_the_vocabulary_share_one_table() -> None:
    layers, table = Int8Layers(4.0), random(30, 16)
    embedding, vocabulary = layers.embedding(table), layers.vocabulary(table, torch.zeros(30))
    assert torch.equal(embedding.weight, vocabulary.weight)
    x = embedding(torch.tensor([[3, 4]]))[0]
    assert (x - table[[3, 4]]).abs().max() < 0.02
    assert (vocabulary(x) - x @ table.t()).abs().max() < 0.5


@torch.no_grad()
def test_the_fixed_range_holds_what_the_decoder_gives() -> None:
    model = make_model(source_vocab_size=50, target_vocab_size=50)
    largest = hidden_range(model)
    assert largest == hidden_range(model)
    source = torch.arange(3, 20)[None]
    mask = torch.ones_like(source, dtype=torch.bool)
    hidden = model.decode(torch.arange(10, 40)[None], model.encode(source, mask), mask)
    assert 0.5 * largest < hidden.abs().max() < 1.2 * largest
