import dataclasses

import pytest
import torch

from model.config import TransformerConfig
from model.transformer import Transformer

SMALL = TransformerConfig(
    source_vocab_size=20,
    target_vocab_size=20,
    d_model=16,
    num_heads=4,
    d_ff=32,
    encoder_layers=2,
    decoder_layers=2,
    dropout=0.0,
)


def create(**fields):
    torch.manual_seed(0)
    return Transformer(dataclasses.replace(SMALL, **fields)).eval()


def create_batch(rows=3, source=7, target=6):
    torch.manual_seed(1)
    mask = torch.ones(rows, source, dtype=torch.bool)
    mask[0, 4:] = False
    ids = torch.randint(3, 20, (rows, source))
    return ids, mask, torch.randint(3, 20, (rows, target))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm_order": "pre", "final_norm": True},
        {"start_from_zero_embedding": True, "positional_encoding": "sinusoidal_halves"},
        {"positional_encoding": "learned", "position_offset": 2, "embedding_norm": True},
        {"tie_embeddings": "none", "target_vocab_size": 23, "output_bias": True},
        {"attention_bias": False, "activation": "silu", "scale_embeddings": False},
    ],
    ids=str,
)
def test_cached_decoding_equals_full_recomputation(fields):
    model = create(**fields)
    source, mask, target = create_batch()
    inputs = model.shift_right(target)
    whole = model(source, mask, inputs)
    cache = model.start_cache(model.encode(source, mask), mask)
    for place in range(inputs.shape[1]):
        logits, cache = model.decode_step(inputs[:, place], cache)
        torch.testing.assert_close(logits, whole[:, place], atol=1e-5, rtol=1e-5)


def test_padding_changes_no_real_position():
    model = create().double()  # only the order of sums may differ, and here that is below 1e-12
    source, mask, target = create_batch()
    inputs = model.shift_right(target)
    plain = model.decode(inputs, model.encode(source, mask), mask)
    source = torch.cat((source, torch.randint(3, 20, (3, 5))), dim=1)
    mask = torch.cat((mask, torch.zeros(3, 5, dtype=torch.bool)), dim=1)
    longer = torch.cat((inputs, torch.randint(3, 20, (3, 5))), dim=1)
    padded = model.decode(longer, model.encode(source, mask), mask)[:, :6]
    assert (padded - plain).abs().max() < 1e-12


def test_a_batch_equals_its_sentences_alone():
    model = create()
    source, mask, target = create_batch()
    inputs = model.shift_right(target)
    together = model(source, mask, inputs)
    for row in range(3):
        length = int(mask[row].sum())
        one = slice(row, row + 1)
        alone = model(source[one, :length], mask[one, :length], inputs[one])
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("tying", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tied_matrices_are_one_parameter(tying, matrices):
    model = create(tie_embeddings=tying)
    weights = {
        id(model.source_embedding.weight),
        id(model.target_embedding.weight),
        id(model.output_projection.weight),
    }
    assert len(weights) == matrices


def test_parameter_counts_of_the_tiny_preset():
    with torch.device("meta"):
        model = Transformer(
            TransformerConfig.from_preset("tiny", source_vocab_size=32000, target_vocab_size=32000)
        )
    attention, feed_forward, norm = 4 * (256 * 256 + 256), 2 * 256 * 1536 + 1536 + 256, 2 * 256
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 2 * (2 * attention + feed_forward + 3 * norm)
    assert sum(p.numel() for p in model.parameters()) == 32000 * 256 + encoder + decoder


def test_targets_are_shifted_right_behind_the_beginning_of_sentence():
    shifted = create().shift_right(torch.tensor([[5, 6, 2], [7, 2, 0]]))
    assert shifted.tolist() == [[1, 5, 6], [1, 7, 2]]


def test_beginning_of_sentence_does_not_matter_where_the_decoder_starts_from_nothing():
    model = create(start_from_zero_embedding=True)
    source, mask, target = create_batch()
    inputs = model.shift_right(target)
    other = inputs.clone()
    other[:, 0] = 17
    assert torch.equal(model(source, mask, inputs), model(source, mask, other))


def test_attention_maps_show_every_layer_and_head():
    model = create()
    source, mask, target = create_batch()
    maps = model.attention_maps(source, mask, model.shift_right(target))
    assert [weights.shape for weights in maps.encoder] == [(3, 4, 7, 7)] * 2
    assert [weights.shape for weights in maps.decoder] == [(3, 4, 6, 6)] * 2
    assert [weights.shape for weights in maps.cross] == [(3, 4, 6, 7)] * 2
    for weights in (*maps.encoder, *maps.decoder, *maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert (maps.cross[0][0, :, :, 4:] == 0).all()


def test_sinusoidal_model_decodes_past_any_length_it_was_made_for():
    model = create(max_positions=4)
    source, mask, _ = create_batch(source=30)
    logits = model(source, mask, torch.randint(3, 20, (3, 40)))
    assert logits.isfinite().all()


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_one_batch_is_learned_by_heart(norm_order):
    model = create(norm_order=norm_order, final_norm=norm_order == "pre").train()
    source, mask, target = create_batch()
    inputs = model.shift_right(target)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(
            model(source, mask, inputs).flatten(0, 1), target.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
