"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from model.config import Activation

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, the same at every position (section 3.3)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation = "relu") -> None:
        """Create D -> F -> D."""
        super().__init__()
        self.linear_in = nn.Linear(d_model, d_ff)
        self.linear_out = nn.Linear(d_ff, d_model)
        self.activation = _ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position by itself.

        Args:
            x: Any positions. Shape (..., D).

        Returns:
            The same positions, transformed. Shape (..., D).
        """
        output: Tensor = self.linear_out(self.activation(self.linear_in(x)))
        return output
