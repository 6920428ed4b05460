"""Drawing a token at random: temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How to draw a target at random; the filters apply in the order in which they stand here."""

    temperature: float = 1.0
    """Divides the log-probabilities; below 1 the likely become likelier."""

    top_k: int = 0
    """Keep so many of the best tokens; 0 keeps all."""

    top_p: float = 1.0
    """Keep the best tokens that together hold this probability, at least one."""

    seed: int = 0
    """Decides everything that chance decides."""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"`temperature` must be above 0, but is {self.temperature}.")
        if self.top_k < 0:
            raise ValueError(f"`top_k` must be at least 0, but is {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be in (0, 1], but is {self.top_p}.")


def sampling_distribution(log_probs: Tensor, sampling: SamplingOptions) -> Tensor:
    """Give the distribution that a token is drawn from: temperature, then top-k, then top-p.

    Args:
        log_probs: Log-probabilities of the next token. Shape (V,).
        sampling: What to keep.

    Returns:
        Probabilities that sum to 1. Shape (V,).
    """
    scaled = log_probs / sampling.temperature
    ordered, order = torch.sort(scaled, descending=True, stable=True)
    if sampling.top_k:
        ordered[sampling.top_k :] = _NEVER
    probabilities = torch.softmax(ordered, dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # mass of all better tokens
    probabilities[before >= sampling.top_p] = 0.0
    result = torch.zeros_like(probabilities)
    result[order] = probabilities / probabilities.sum()
    return result
