"""The layers that hold the big matrices: what a precision must offer, and float32.

`export/quantize.py` holds the int8 ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.operators import reshape, take

__all__ = ["FloatLayers", "LayerFactory", "join_chunks"]


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
        """Create x W^T + b for (R, 1, D) and the table of an embedding, (V, D), stored as `embedding` stores it."""

    def embedding(self, weight: Tensor) -> nn.Module:
        """Create the look-up in a table (V, D): ids (...) and factors, one or (...), to vectors (..., D)."""

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the look-up of words (G, U) in the table of `vocabulary`: weights (G, D, U), biases (G, 1, U)."""

    def cache_scales(self, source: nn.Module) -> Tensor | None:
        """Give the scale of each channel, (D,), of what `source` makes for a cache of int8; None for any other."""

    def list_product(self) -> nn.Module:
        """Create the product of rows (R, 1, D) and columns that are given with them.

        Those of frequent words and of chunks of sentences' own words, as `signature.shortlist_decoder_inputs` has
        them. It gives the logits of each lane, (B, J, F + P * 192).
        """


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
        return _FloatVocabulary(weight.detach(), bias.detach())

    def embedding(self, weight: Tensor) -> nn.Module:
        return _FloatEmbedding(weight.detach())

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return _FloatColumns(weight.detach(), bias)

    def cache_scales(self, source: nn.Module) -> Tensor | None:  # noqa: ARG002 - as the protocol has it
        return None

    def list_product(self) -> nn.Module:
        return _FloatListProduct()


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


class _FloatEmbedding(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, ids: Tensor, factors: Tensor) -> Tensor:
        return take(self.weight, ids) * (factors.unsqueeze(-1) if factors.dim() else factors)


class _FloatVocabulary(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(
            reshape(x, 0, -1), self.weight, self.bias
        )  # on two axes one operator adds the bias, too


class _FloatColumns(nn.Module):
    """Some columns of W^T, (G, D, U), and of b, (G, 1, U)."""

    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.register_buffer("bias", bias.detach().clone())

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return take(self.weight, ids).transpose(1, 2), take(self.bias, ids).unsqueeze(1)


class _FloatListProduct(nn.Module):
    """x W + b for W that are no constants."""

    def forward(  # noqa: PLR0913, PLR0917 - as the graph has them
        self,
        x: Tensor,
        frequent: tuple[Tensor, ...],
        chunks: tuple[Tensor, ...],
        lane_rows: Tensor,
        chunk_rows: Tensor,
        lane_chunks: Tensor,
    ) -> Tensor:
        rows = reshape(x, 0, -1)
        weights, biases = frequent
        # A row alone would be another kernel, with another order of its sums: so one row more than there are.
        common = torch.cat([rows, rows[:1]]) @ weights + biases  # (R + 1, F)
        weights, biases = chunks
        parts = take(rows, chunk_rows) @ weights + biases  # (G, J, 192)
        return torch.cat([take(common, lane_rows), join_chunks(parts, lane_chunks)], -1)


def join_chunks(parts: Tensor, lane_chunks: Tensor) -> Tensor:
    """Put the logits (G, J, 192) of each lane's chunks (B, J, P) side by side: (B, J, P * 192)."""
    found = take(reshape(parts, -1, parts.shape[2]), lane_chunks)
    return reshape(found, 0, 0, -1)
