import math

import numpy as np
import pytest
import torch

from model.attention import MultiHeadAttention, scaled_dot_product_attention
from model.masks import causal_mask


def test_numbers_of_the_worked_example():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    output, weights = scaled_dot_product_attention(x, x, x)
    close = {"atol": 5e-4, "rtol": 0.0}
    torch.testing.assert_close(weights[0], torch.tensor([0.335, 0.165, 0.335, 0.165]), **close)
    torch.testing.assert_close(weights[2], torch.tensor([0.221, 0.221, 0.449, 0.109]), **close)
    torch.testing.assert_close(weights[3], torch.full((4,), 0.25), **close)
    torch.testing.assert_close(output[2], torch.tensor([0.670, 0.670]), **close)
    torch.testing.assert_close(output[3], torch.tensor([0.5, 0.5]), **close)


def test_equals_a_naive_loop_in_numpy():
    generator = np.random.default_rng(0)
    q, k, v = (generator.normal(size=(5, 4)) for _ in range(3))
    expected = np.zeros((5, 4))
    for row in range(5):
        scores = np.array([q[row] @ k[column] / math.sqrt(4) for column in range(5)])
        weights = np.exp(scores) / np.exp(scores).sum()
        expected[row] = sum(weights[column] * v[column] for column in range(5))
    output, _ = scaled_dot_product_attention(*(torch.from_numpy(x) for x in (q, k, v)))
    np.testing.assert_allclose(output.numpy(), expected, atol=1e-12)


def test_masked_place_gets_no_weight():
    x = torch.randn(3, 4)
    _, weights = scaled_dot_product_attention(x, x, x, torch.tensor([True, False, True]))
    assert (weights[:, 1] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))


@pytest.mark.parametrize("num_heads", [1, 8, 16])
def test_weights_are_four_square_matrices_whatever_the_number_of_heads(num_heads):
    attention = MultiHeadAttention(512, num_heads, bias=False)
    assert sum(p.numel() for p in attention.parameters()) == 1_048_576


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="`num_heads` must divide 10"):
        MultiHeadAttention(10, 3)


def test_heads_are_a_reshape():
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    q, k, v = attention.query_proj(x), attention.key_proj(x), attention.value_proj(x)
    heads = [
        scaled_dot_product_attention(q[..., part], k[..., part], v[..., part])[0]
        for part in (slice(0, 4), slice(4, 8))
    ]
    expected = attention.output_proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(attention(x, x, x), expected)


def test_fused_path_equals_the_open_one_that_returns_weights():
    torch.manual_seed(0)
    attention, x, trace = MultiHeadAttention(16, 4), torch.randn(2, 6, 16), []
    mask = causal_mask(6)
    opened = attention(x, x, x, mask, trace)
    torch.testing.assert_close(attention(x, x, x, mask), opened)
    (weights,) = trace
    assert weights.shape == (2, 4, 6, 6)
    assert weights.triu(1).abs().max() == 0


def test_training_in_bfloat16_gives_nearly_the_gradients_of_float32():
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(16, 4), torch.randn(2, 6, 16)
    attention(x, x, x).square().sum().backward()
    exact = attention.key_proj.weight.grad.clone()
    attention.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attention(x, x, x)
    output.float().square().sum().backward()
    error = (attention.key_proj.weight.grad - exact).norm() / exact.norm()
    assert error < 0.05
