"""Attention masks; True means "may attend" everywhere in this project."""

from __future__ import annotations

import torch
from torch import Tensor


def padding_mask(token_ids: Tensor, pad_id: int) -> Tensor:
    """Mark real tokens.

    Only fit where `pad_id` is no real token's id; a Marian vocabulary has no padding piece, and there the lengths
    decide (`length_mask`).

    Args:
        token_ids: Padded sequences. Shape (B, S).
        pad_id: The id that fills the end of short sequences.

    Returns:
        True at every token that is not padding. Shape (B, S).
    """
    return token_ids != pad_id


def length_mask(lengths: Tensor, max_length: int) -> Tensor:
    """Mark the first `lengths[b]` places of each row.

    Args:
        lengths: Real tokens in each sequence. Shape (B,).
        max_length: Padded length S.

    Returns:
        True at real tokens. Shape (B, S).
    """
    return torch.arange(max_length, device=lengths.device) < lengths.unsqueeze(1)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Let every position see itself and what stands before it (section 3.2.3).

    Returns:
        Lower triangle of True, which broadcasts over rows and heads. Shape (1, 1, T, T).
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def key_mask(source_mask: Tensor) -> Tensor:
    """Turn a mask of real source tokens into one that broadcasts over heads and queries.

    Args:
        source_mask: True at real tokens. Shape (B, S).

    Returns:
        The same mask. Shape (B, 1, 1, S).
    """
    return source_mask[:, None, None, :]
