import pytest
import torch
import torch.nn.functional as F

from model.feed_forward import FeedForward


def test_parameter_count_is_that_of_two_linear_maps():
    d_model, d_ff = 64, 256
    network = FeedForward(d_model, d_ff)
    expected = 2 * d_model * d_ff + d_ff + d_model
    assert sum(p.numel() for p in network.parameters()) == expected


@pytest.mark.parametrize(
    ("name", "function"), [("relu", F.relu), ("silu", F.silu), ("gelu", F.gelu)]
)
def test_activation_stands_between_the_two_maps(name, function):
    network, x = FeedForward(4, 8, name), torch.randn(2, 3, 4)
    expected = network.linear_out(function(network.linear_in(x)))
    torch.testing.assert_close(network(x), expected)


def test_relu_is_the_default():
    network = FeedForward(4, 8)
    x = torch.randn(5, 4)
    torch.testing.assert_close(network(x), network.linear_out(network.linear_in(x).clamp(min=0)))


def test_positions_do_not_see_each_other():
    network, x = FeedForward(4, 8), torch.randn(1, 3, 4)
    torch.testing.assert_close(network(x)[:, 1], network(x[:, 1]))
