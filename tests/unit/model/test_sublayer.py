import torch
from torch import nn

from model.config import TransformerConfig
from model.sublayer import Sublayer, create_final_norm


def config(**fields):
    return TransformerConfig(
        **{
            "source_vocab_size": 5,
            "target_vocab_size": 5,
            "d_model": 8,
            "dropout": 0.0,
            **fields,
        }
    )


def test_post_norm_normalizes_the_sum():
    sublayer, x = Sublayer(config(norm_order="post")), torch.randn(2, 3, 8)
    torch.testing.assert_close(sublayer(x, torch.tanh), sublayer.norm(x + torch.tanh(x)))


def test_pre_norm_leaves_the_residual_path_alone():
    sublayer, x = Sublayer(config(norm_order="pre")), torch.randn(2, 3, 8)
    torch.testing.assert_close(sublayer(x, torch.tanh), x + torch.tanh(sublayer.norm(x)))


def test_dropout_is_for_training_only():
    sublayer, x = Sublayer(config(norm_order="pre", dropout=0.9)), torch.randn(2, 3, 8)
    torch.testing.assert_close(sublayer.eval()(x, torch.tanh), x + torch.tanh(sublayer.norm(x)))
    assert (sublayer.train()(x, torch.tanh) == x).float().mean() > 0.5


def test_epsilon_comes_from_the_config():
    assert Sublayer(config(norm_eps=1e-9)).norm.eps == 1e-9


def test_final_norm_is_optional():
    assert isinstance(create_final_norm(config()), nn.Identity)
    assert isinstance(create_final_norm(config(final_norm=True)), nn.LayerNorm)
