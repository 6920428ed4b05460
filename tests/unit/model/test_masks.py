import torch

from model.masks import causal_mask, key_mask, length_mask, padding_mask


def test_padding_mask_is_true_at_real_tokens():
    ids = torch.tensor([[5, 6, 0], [7, 0, 0]])
    assert padding_mask(ids, pad_id=0).tolist() == [[True, True, False], [True, False, False]]


def test_length_mask_is_true_up_to_each_length():
    mask = length_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]


def test_causal_mask_lets_a_position_see_itself_and_the_past():
    mask = causal_mask(3)
    assert mask.shape == (1, 1, 3, 3)
    assert mask[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_key_mask_broadcasts_over_heads_and_queries():
    mask = torch.tensor([[True, False]])
    assert key_mask(mask).shape == (1, 1, 1, 2)
