import pytest
import torch

from model.config import TransformerConfig
from model.encoder import Encoder, EncoderLayer
from model.masks import key_mask


def config(**fields):
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "encoder_layers": 2, "dropout": 0.0}
    return TransformerConfig(**{"source_vocab_size": 9, "target_vocab_size": 9, **sizes, **fields})


def test_six_layers_of_width_512_have_about_nineteen_million_parameters():
    with torch.device("meta"):
        encoder = Encoder(config(d_model=512, num_heads=8, d_ff=2048, encoder_layers=6))
    assert sum(p.numel() for p in encoder.parameters()) == 18_914_304


def test_a_layer_has_two_sublayers():
    names = [name for name, _ in EncoderLayer(config()).named_children() if "sublayer" in name]
    assert names == ["self_attention_sublayer", "feed_forward_sublayer"]


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_padding_changes_no_real_position(norm_order):
    torch.manual_seed(0)
    encoder = Encoder(config(norm_order=norm_order, final_norm=True)).eval()
    x, mask = torch.randn(1, 5, 16), torch.ones(1, 5, dtype=torch.bool)
    alone = encoder(x, key_mask(mask))
    padded = torch.cat((x, torch.randn(1, 7, 16) * 100), dim=1)
    longer = torch.cat((mask, torch.zeros(1, 7, dtype=torch.bool)), dim=1)
    assert (encoder(padded, key_mask(longer))[:, :5] - alone).abs().max() < 1e-6


def test_every_layer_leaves_its_weights_in_a_trace():
    trace = []
    mask = torch.tensor([[True, True, False]])
    Encoder(config())(torch.randn(1, 3, 16), key_mask(mask), trace)
    assert [weights.shape for weights in trace] == [(1, 4, 3, 3)] * 2
    assert all((weights[..., 2] == 0).all() for weights in trace)
