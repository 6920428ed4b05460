import pytest
import torch

from model.config import TransformerConfig
from model.decoder import Decoder, DecoderLayer
from model.masks import causal_mask, key_mask


def create_decoder(**fields):
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "decoder_layers": 2, "dropout": 0.0}
    vocabulary = {"source_vocab_size": 9, "target_vocab_size": 9}
    torch.manual_seed(0)
    return Decoder(TransformerConfig(**{**vocabulary, **sizes, **fields})).eval()


def create_inputs(rows=3, source=5, target=6):
    torch.manual_seed(1)
    mask = torch.ones(rows, source, dtype=torch.bool)
    mask[0, 3:] = False
    return torch.randn(rows, target, 16), torch.randn(rows, source, 16), mask


def test_a_layer_has_three_sublayers():
    layer = create_decoder().layers[0]
    assert isinstance(layer, DecoderLayer)
    names = [name for name, _ in layer.named_children() if "sublayer" in name]
    assert names == [
        "self_attention_sublayer",
        "cross_attention_sublayer",
        "feed_forward_sublayer",
    ]


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_cached_decoding_equals_full_recomputation(norm_order):
    decoder = create_decoder(norm_order=norm_order, final_norm=norm_order == "pre")
    x, memory, mask = create_inputs()
    whole = decoder(x, memory, causal_mask(6), key_mask(mask))
    cache = decoder.start_cache(memory, mask)
    for place in range(6):
        assert cache.length == place
        step, cache = decoder.step(x[:, place : place + 1], cache)
        torch.testing.assert_close(step[:, 0], whole[:, place], atol=1e-6, rtol=1e-5)


def test_a_step_leaves_the_old_cache_as_it_was():
    decoder = create_decoder()
    x, memory, mask = create_inputs()
    _, first = decoder.step(x[:, :1], decoder.start_cache(memory, mask))
    keys = first.layers[0].self_keys.clone()
    decoder.step(x[:, 1:2], first)
    assert first.length == 1
    assert torch.equal(first.layers[0].self_keys, keys)


def test_gather_follows_the_rows():
    decoder = create_decoder()
    x, memory, mask = create_inputs()
    _, cache = decoder.step(x[:, :1], decoder.start_cache(memory, mask))
    rows = torch.tensor([2, 0, 0, 1])
    expected, _ = decoder.step(x[:, 1:2], cache)
    gathered, _ = decoder.step(x[rows, 1:2], cache.gather(rows))
    torch.testing.assert_close(gathered, expected[rows])


def test_gathering_twice_is_gathering_by_the_composed_rows():
    decoder = create_decoder()
    x, memory, mask = create_inputs()
    _, cache = decoder.step(x[:, :1], decoder.start_cache(memory, mask))
    first, second = torch.tensor([2, 0, 1, 1]), torch.tensor([3, 3, 0])
    twice, once = cache.gather(first).gather(second), cache.gather(first[second])
    assert torch.equal(twice.source_mask, once.source_mask)
    assert torch.equal(twice.layers[1].self_values, once.layers[1].self_values)
    assert torch.equal(twice.layers[1].cross_keys, once.layers[1].cross_keys)


def test_no_position_sees_what_comes_after_it():
    decoder = create_decoder()
    x, memory, mask = create_inputs()
    before = decoder(x, memory, causal_mask(6), key_mask(mask))
    x[:, 4:] += 100.0
    after = decoder(x, memory, causal_mask(6), key_mask(mask))
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


def test_source_padding_changes_no_target_position():
    decoder = create_decoder()
    x, memory, mask = create_inputs()
    plain = decoder(x, memory, causal_mask(6), key_mask(mask))
    memory = torch.cat((memory, torch.randn(3, 4, 16) * 100), dim=1)
    mask = torch.cat((mask, torch.zeros(3, 4, dtype=torch.bool)), dim=1)
    padded = decoder(x, memory, causal_mask(6), key_mask(mask))
    assert (padded - plain).abs().max() < 1e-6
