"""The layers that hold the big matrices: what a precision must offer, and float32.

`export/quantize.py` holds the int8 ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["FloatLayers", "LayerFactory"]


class LayerFactory(Protocol):
    """Makes the layers that hold the big matrices; one implementation for each precision."""

    def linear(
        self,
        weight: Tensor,
        bias: Tensor,
        *,
        rectify: bool = False,
        source: nn.Module | None = None,
    ) -> nn.Module:
        """Create x W^T + b.

        Args:
            weight: Shape (N, K).
            bias: Shape (N,).
            rectify: Take max(x, 0) in the place of x.
            source: A layer of the model that reads the same x; a precision may know the range of x by it.
        """

    def parallel(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        *,
        source: nn.Module | None = None,
    ) -> nn.Module:
        """Create several products of one input, which give a tuple; `source` as in `linear`."""

    def vocabulary(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create x W^T + b for the table of an embedding, shape (V, D), stored as `embedding` stores it."""

    def embedding(self, weight: Tensor) -> nn.Module:
        """Create the look-up in a table of shape (V, D)."""

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the look-up of words (U,) in the table that `vocabulary` has: what `product` wants of them."""

    def product(self) -> nn.Module:
        """Create x times columns that are given with it, for rows (R, D): at least R rows (.., U)."""


class FloatLayers:
    """Layers in float32; see `LayerFactory`."""

    def linear(
        self,
        weight: Tensor,
        bias: Tensor,
        *,
        rectify: bool = False,
        source: nn.Module | None = None,
    ) -> nn.Module:
        linear = _FloatLinear(weight.detach().t().contiguous(), bias.detach())
        return nn.Sequential(nn.ReLU(), linear) if rectify else linear

    def parallel(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        *,
        source: nn.Module | None = None,
    ) -> nn.Module:
        return _FloatParallel(
            [self.linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
        )

    def vocabulary(self, weight: Tensor, bias: Tensor) -> nn.Module:
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = weight.detach(), bias.detach()
        return linear

    def embedding(self, weight: Tensor) -> nn.Module:
        embedding = nn.Embedding(*weight.shape)
        embedding.weight.data = weight.detach()
        return embedding

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return _FloatColumns(self.embedding(weight), bias)

    def product(self) -> nn.Module:
        return _FloatProduct()


class _FloatLinear(nn.Module):
    """x W + b, with W stored as the product reads it, (K, N)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class _FloatParallel(nn.Module):
    def __init__(self, linears: Sequence[nn.Module]) -> None:
        super().__init__()
        self.linears = nn.ModuleList(linears)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(linear(x) for linear in self.linears)


class _FloatColumns(nn.Module):
    """Some columns of W^T, (D, U), and of b, (U,)."""

    bias: Tensor

    def __init__(self, table: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.table = table
        self.register_buffer("bias", bias.detach().clone())

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.table(ids).t(), F.embedding(ids, self.bias.unsqueeze(-1)).squeeze(-1)


class _FloatProduct(nn.Module):
    """x W + b for a W that is no constant."""

    def forward(self, x: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
        # A row alone would be another kernel, with another order of its sums: so one row more than there are.
        return torch.cat([x, x[:1]]) @ weights + biases
