"""Layers in int8: weights with one scale a column, activations with one scale a row.

A row's scale comes from that row alone, so its result never depends on who else is in the batch; the products are exact
integers. Weights are symmetric signed, activations unsigned: the pair that processors multiply fast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Int8Layers", "quantize_rows"]

_SMALLEST = 1e-30
"""Stands in for the maximum of a row of zeros, whose scale would divide by nothing."""


class Int8Layers:
    """Layers whose products are of int8 numbers; see `export.graphs.LayerFactory`."""

    def linear(self, weight: Tensor, bias: Tensor, non_negative: bool = False) -> nn.Module:
        return _Int8Linear(weight, bias, non_negative=non_negative, transposed=True)

    def vocabulary(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return _Int8Linear(weight, bias, non_negative=False, transposed=False)

    def embedding(self, weight: Tensor) -> nn.Module:
        return _Int8Embedding(weight)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to int8 with one scale for each row.

    Args:
        weight: Shape (N, K).

    Returns:
        Numbers in [-127, 127], shape (N, K), and scales, shape (N,): their product is close to `weight`.
    """
    scales = weight.detach().abs().amax(1).clamp(min=_SMALLEST) / 127
    return (weight.detach() / scales[:, None]).round().to(torch.int8), scales


class _Int8Linear(nn.Module):
    """x W^T + b; `transposed` stores W as the product reads it, (K, N), else as an embedding does, (N, K)."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, non_negative: bool, transposed: bool) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.transposed = transposed
        self.register_buffer("weight", rounded.t().contiguous() if transposed else rounded)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias.detach().clone())
        # What is never negative has the whole range of unsigned numbers for itself.
        self.zero_point = 0 if non_negative else 128
        self.levels = 255.0 if non_negative else 127.0

    def forward(self, x: Tensor) -> Tensor:
        largest = (
            x.amax(-1, keepdim=True) if self.zero_point == 0 else x.abs().amax(-1, keepdim=True)
        )
        largest = largest.clamp(min=_SMALLEST)  # (R, 1)
        one, zero_point = torch.tensor(1.0), torch.tensor(self.zero_point, dtype=torch.uint8)
        rounded = torch.onnx.ops.symbolic(
            "QuantizeLinear",
            (x * (self.levels / largest), one, zero_point),
            dtype=torch.uint8,
            shape=x.shape,
        )
        product = torch.onnx.ops.symbolic(
            "com.microsoft::MatMulIntegerToFloat",
            (
                rounded,
                self.weight if self.transposed else self.weight.t(),
                one,
                self.scales,
                zero_point,
            ),
            dtype=torch.float32,
            shape=(*x.shape[:-1], self.scales.shape[0]),
            version=1,
        )
        output: Tensor = product * (largest / self.levels) + self.bias
        return output


class _Int8Embedding(nn.Module):
    """Look-up in a table of int8 rows."""

    weight: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales)

    def forward(self, ids: Tensor) -> Tensor:
        rows = F.embedding(ids, self.weight).to(torch.float32)
        return rows * F.embedding(ids, self.scales.unsqueeze(-1))
