"""The end of the decoder graph: from log-probabilities of all words to the best few of each row."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from export.signature import VOCAB_BLOCK

__all__ = ["best_candidates", "edit"]


def edit(log_probs: Tensor, positions: Tensor, scales: Tensor, biases: Tensor) -> Tensor:
    """Replace single log-probabilities by `log_prob * scale + bias`.

    On the flat view: there the runtime writes in place, while an update by (row, token) copies all of them.
    """
    flat = log_probs.reshape(-1)
    places = positions[:, 0] * log_probs.shape[1] + positions[:, 1]
    edited = flat.scatter(0, places, flat.gather(0, places) * scales + biases)
    return edited.reshape(-1, log_probs.shape[1])


def best_candidates(log_probs: Tensor, num_candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Find the best words of each row, best first, equal ones in the order of their ids; exact.

    The best N words lie in the N blocks with the best maxima, so only those are searched.

    Args:
        log_probs: Shape (R, V).
        num_candidates: N. Shape (1,).
    """
    count = cast(int, num_candidates.item())  # stays a symbol while the graph is traced
    num_blocks = log_probs.shape[1] // VOCAB_BLOCK
    blocks = log_probs.reshape(-1, num_blocks, VOCAB_BLOCK)  # (R, V/64, 64)
    num_winners = torch.sym_min(count, num_blocks)
    winners = blocks.amax(-1).topk(num_winners, dim=1).indices
    winners = winners.sort(dim=1).values  # so that equal words keep their order
    rows = torch.arange(log_probs.shape[0]).unsqueeze(1)
    flat = rows * num_blocks + winners
    searched = F.embedding(flat, blocks.flatten(0, 1)).flatten(1)  # (R, winners * 64)
    best, places = searched.topk(count, dim=1)
    ranks = torch.div(places, VOCAB_BLOCK, rounding_mode="trunc")
    ids = (winners.gather(1, ranks) - ranks) * VOCAB_BLOCK + places
    return ids, best
