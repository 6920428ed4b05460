"""The end of the decoder graph: from log-probabilities of all words to the best few of each row."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from export.signature import VOCAB_BLOCK

__all__ = ["best_candidates", "divide", "edit"]


def edit(log_probs: Tensor, positions: Tensor, scales: Tensor, biases: Tensor) -> Tensor:
    """Replace single log-probabilities by `log_prob * scale + bias`.

    On the flat view: there the runtime writes in place, while an update by (row, token) copies all of them.
    """
    flat = log_probs.reshape(-1)
    width = log_probs.shape[1]
    if isinstance(
        width, int
    ):  # without a matrix product or axis -1, which fail before 1.32 when E is 0
        places = (positions * torch.tensor([width, 1])).sum(1)
    else:
        places = positions[:, 0] * width + positions[:, 1]
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
    # Ascending, so that equal words keep their order.
    winners = winners.topk(num_winners, dim=1, largest=False).values
    searched = _gather_blocks(blocks, winners)  # (R, winners * 64)
    best, places = searched.topk(count, dim=1)
    ranks = divide(places, torch.tensor(VOCAB_BLOCK))
    ids = (winners.gather(1, ranks) - ranks) * VOCAB_BLOCK + places
    return ids, best


def divide(x: Tensor, divisor: Tensor) -> Tensor:
    """Divide integers that are not negative, and drop the remainder: one operator, where the exporter takes seven."""
    quotient: Tensor = torch.onnx.ops.symbolic(
        "Div", (x, divisor), dtype=torch.int64, shape=x.shape
    )
    return quotient


def _gather_blocks(blocks: Tensor, chosen: Tensor) -> Tensor:
    """Give the chosen blocks of each row side by side, (R, N * 64)."""
    num_rows, num_chosen = chosen.shape
    found = torch.onnx.ops.symbolic(
        "GatherND",
        (blocks, chosen.unsqueeze(-1)),
        {"batch_dims": 1},
        dtype=blocks.dtype,
        shape=(num_rows, num_chosen, VOCAB_BLOCK),
    )
    flat: Tensor = torch.onnx.ops.symbolic(
        "Flatten", (found,), dtype=blocks.dtype, shape=(num_rows, num_chosen * VOCAB_BLOCK)
    )
    return flat
