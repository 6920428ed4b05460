import math

import torch

from model.config import TransformerConfig
from model.embedding import InputEmbedding

IDS = torch.tensor([[3, 1, 4], [1, 5, 2]])


def embed(**fields):
    config = TransformerConfig(
        **{
            "source_vocab_size": 6,
            "target_vocab_size": 6,
            "d_model": 16,
            "dropout": 0.0,
            **fields,
        }
    )
    torch.manual_seed(0)
    return InputEmbedding(config, 6, start_from_zero=config.start_from_zero_embedding)


def test_tokens_are_scaled_by_the_root_of_the_width():
    embedding = embed()
    positions = embedding.positions(torch.arange(3))
    expected = embedding.weight[IDS] * math.sqrt(16) + positions
    torch.testing.assert_close(embedding(IDS), expected)


def test_scaling_can_be_left_out():
    embedding = embed(scale_embeddings=False)
    expected = embedding.weight[IDS] + embedding.positions(torch.arange(3))
    torch.testing.assert_close(embedding(IDS), expected)


def test_rows_may_stand_at_positions_of_their_own():
    embedding = embed()
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]])
    whole = embedding(torch.cat((torch.zeros(1, 5, dtype=torch.long), IDS[1:]), dim=1))
    torch.testing.assert_close(embedding(IDS, positions)[1], whole[0, 5:])


def test_first_token_counts_as_zero_where_the_decoder_starts_from_nothing():
    embedding = embed(start_from_zero_embedding=True)
    embedded = embedding(IDS)
    torch.testing.assert_close(embedded[0, 0], embedding.positions(torch.tensor(0)))
    torch.testing.assert_close(embedded[:, 1:], embed()(IDS)[:, 1:])


def test_norm_on_embeddings_is_optional():
    embedded = embed(embedding_norm=True)(IDS)
    torch.testing.assert_close(embedded.mean(-1), torch.zeros(2, 3), atol=1e-6, rtol=0.0)
    assert isinstance(embed().norm, torch.nn.Identity)
