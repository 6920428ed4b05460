"""Residual connection and layer normalization around every sub-layer (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from model.config import TransformerConfig


class Sublayer(nn.Module):
    """Wraps attention or feed-forward; the only place that knows whether the norm comes first or last.

    Post-LN, the paper: LayerNorm(x + f(x)). Pre-LN (Xiong et al. 2020), stable in deep stacks: x + f(LayerNorm(x)).
    """

    def __init__(self, config: TransformerConfig) -> None:
        """Create the norm of one sub-layer."""
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.norm_first = config.norm_order == "pre"

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `function` with its residual and norm.

        Args:
            x: What goes around and through. Shape (R, T, D).
            function: The sub-layer itself, keeping the shape.

        Returns:
            The sum, normalized by the order of the config. Shape (R, T, D).
        """
        if self.norm_first:
            summed: Tensor = x + self.dropout(function(self.norm(x)))
            return summed
        normed: Tensor = self.norm(x + self.dropout(function(x)))
        return normed


def create_final_norm(config: TransformerConfig) -> nn.Module:
    """Create the norm behind the last layer, or nothing where the config has none."""
    if config.final_norm:
        return nn.LayerNorm(config.d_model, eps=config.norm_eps)
    return nn.Identity()
