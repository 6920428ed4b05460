"""Label-smoothed cross-entropy over real target tokens (Vaswani et al. 2017, section 5.4; Szegedy et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.data import Batch
from model.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Sums over the real target tokens of a batch; divide by the tokens of all batches of an update."""

    loss: Tensor
    """Label-smoothed cross-entropy, to be differentiated. Shape ()."""

    nll: Tensor
    """Negative log-likelihood without smoothing, detached: exp(nll / tokens) is the perplexity. Shape ()."""

    num_tokens: int
    """Real target tokens."""


def label_smoothed_cross_entropy(
    logits: Tensor, target_ids: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Compare logits with the right words, of which `smoothing` is taken and spread over the whole vocabulary.

    loss = (1 - smoothing) * (-log p(target)) + smoothing * mean over the vocabulary of (-log p).

    Args:
        logits: Scores before softmax. Shape (N, V).
        target_ids: The right words. Shape (N,).
        smoothing: Probability mass that is spread, 0 for plain cross-entropy.

    Returns:
        Sum of the loss over the N words, and sum of the plain negative log-likelihood, detached; both in float32.
    """
    logits = logits.float()
    loss = F.cross_entropy(logits, target_ids, reduction="sum", label_smoothing=smoothing)
    with torch.no_grad():
        # From the formula above: nll = loss + smoothing * (mean logit - right logit), which spares a second softmax.
        right = logits.gather(1, target_ids.unsqueeze(1)).squeeze(1)  # (N,)
        nll = loss.detach() + smoothing * (logits.mean(dim=-1) - right).sum()
    return loss, nll


def translation_loss(model: Transformer, batch: Batch, smoothing: float) -> LossSums:
    """Score the targets of a batch by teacher forcing; padding is never projected to the vocabulary."""
    memory = model.encode(batch.source_ids, batch.source_mask)
    hidden = model.decode(model.shift_right(batch.target_ids), memory, batch.source_mask)
    logits = model.project(hidden[batch.target_mask])  # (N, V), N real tokens
    loss, nll = label_smoothed_cross_entropy(logits, batch.target_ids[batch.target_mask], smoothing)
    return LossSums(loss=loss, nll=nll, num_tokens=batch.num_target_tokens)
