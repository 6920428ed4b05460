"""The end of the decoder graph: from log-probabilities of all words to the best few of each row."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from export.operators import divide, gather_blocks, take_best

__all__ = ["best_candidates", "edit"]


def edit(log_probs: Tensor, positions: Tensor, scales: Tensor, biases: Tensor) -> Tensor:
    """Replace single log-probabilities by `log_prob * scale + bias`.

    All rows in one axis: so the runtime writes in place, while an update by (row, token) copies all of them.

    Args:
        log_probs: Shape (R * V,).
        positions: row * V + token, each once. Shape (E,).
        scales: Shape (E,).
        biases: Shape (E,).
    """
    return log_probs.scatter(0, positions, log_probs.gather(0, positions) * scales + biases)


def best_candidates(
    blocks: Tensor, num_candidates: Tensor, num_blocks: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the best words of each row, best first, equal ones in the order of their ids; exact.

    The best N words lie in the N blocks with the best maxima, so only those are searched.

    Args:
        blocks: Log-probabilities, the vocabulary cut into blocks of L. Shape (R, W, L).
        num_candidates: N. Shape (1,).
        num_blocks: W. Shape (1,).

    Returns:
        Ids and log-probabilities, (R, N) each.
    """
    length = blocks.shape[2]
    count = cast(int, num_candidates.item())  # stays a symbol while the graph is traced
    size = torch.sym_min(count, blocks.shape[1])
    num_winners = torch.minimum(num_candidates, num_blocks)
    _, winners = take_best(blocks.amax(-1), num_winners, size)
    # Ascending, so that equal words keep their order.
    winners, _ = take_best(winners, num_winners, size, largest=False)
    best, places = take_best(gather_blocks(blocks, winners), num_candidates, count)
    ranks = divide(places, torch.tensor(length))
    ids = (winners.gather(1, ranks) - ranks) * length + places
    return ids, best
