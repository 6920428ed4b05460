"""Layers in int8: weights with one scale a column, activations with one scale a row.

A row's scale comes from that row alone, so its result never depends on who else is in the batch; the products are exact
integers. Weights are symmetric signed, activations unsigned: the pair that processors multiply fast. Before the
vocabulary the scale is fixed at export: there the multiplication by a row's own scale would go over more numbers than
all others together, and the LayerNorm before it keeps the range the same for every text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Int8Layers", "quantize_rows"]

_SMALLEST = 1e-30
"""Stands in for the maximum of a row of zeros, whose scale would divide by nothing."""

_ZERO_POINT = 128


class Int8Layers:
    """Layers whose products are of int8 numbers."""

    def __init__(self, hidden_range: float) -> None:
        """Take the largest magnitude that the input of the vocabulary has."""
        self._hidden_range = hidden_range

    def linear(self, weight: Tensor, bias: Tensor, non_negative: bool = False) -> nn.Module:
        """Create x W^T + b; see `export.layers.LayerFactory`."""
        return _Int8Linear(_Int8Columns(weight, bias), non_negative)

    def parallel(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> nn.Module:
        """Create several products of one input, which is quantized once."""
        pairs = zip(weights, biases, strict=True)
        return _Int8Parallel([_Int8Columns(weight, bias) for weight, bias in pairs])

    def vocabulary(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the output projection, with the table as `embedding` has it."""
        return _Int8Vocabulary(weight, bias, self._hidden_range)

    def embedding(self, weight: Tensor) -> nn.Module:
        """Create the look-up in a table of int8 rows."""
        return _Int8Embedding(weight)

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the look-up of columns in the table of `vocabulary`."""
        return _Int8ColumnTable(weight, bias)

    def product(self) -> nn.Module:
        """Create the product of `vocabulary` for columns that are given with its input."""
        return _Int8Product(self._hidden_range)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to int8 with one scale for each row.

    Args:
        weight: Shape (N, K).

    Returns:
        Numbers in [-127, 127], shape (N, K), and scales, shape (N,): their product is close to `weight`.
    """
    scales = weight.detach().abs().amax(1).clamp(min=_SMALLEST) / 127
    return (weight.detach() / scales[:, None]).round().to(torch.int8), scales


class _RowQuantizer(nn.Module):
    """Rounds each row of x to unsigned int8 by its own scale."""

    def __init__(self, non_negative: bool) -> None:
        super().__init__()
        # What is never negative has the whole range of unsigned numbers for itself.
        self.non_negative = non_negative
        self.zero_point = 0 if non_negative else _ZERO_POINT
        self.levels = 255.0 if non_negative else 127.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        largest = (x if self.non_negative else x.abs()).amax(-1, keepdim=True)
        largest = largest.clamp(min=_SMALLEST)  # (R, 1)
        rounded = _quantize(x * (self.levels / largest), torch.tensor(1.0), self.zero_point)
        return rounded, largest / self.levels


class _Int8Columns(nn.Module):
    """Product of quantized rows with W^T, and b; W is stored as the product reads it, (K, N)."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.register_buffer("weight", rounded.t().contiguous())
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias.detach().clone())

    def forward(self, rounded: Tensor, row_scales: Tensor, zero_point: int) -> Tensor:
        one = torch.tensor(1.0)
        product = _multiply(rounded, self.weight, one, self.scales, zero_point)
        return product * row_scales + self.bias


class _Int8Linear(nn.Module):
    """x W^T + b."""

    def __init__(self, columns: _Int8Columns, non_negative: bool) -> None:
        super().__init__()
        self.quantizer = _RowQuantizer(non_negative)
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        rounded, row_scales = self.quantizer(x)
        output: Tensor = self.columns(rounded, row_scales, self.quantizer.zero_point)
        return output


class _Int8Parallel(nn.Module):
    """x W^T + b for several W and b."""

    def __init__(self, columns: Sequence[_Int8Columns]) -> None:
        super().__init__()
        self.quantizer = _RowQuantizer(non_negative=False)
        self.columns = nn.ModuleList(columns)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rounded, row_scales = self.quantizer(x)
        return tuple(c(rounded, row_scales, self.quantizer.zero_point) for c in self.columns)


class _Int8Vocabulary(nn.Module):
    """x W^T + b with a fixed scale for x; W is stored as an embedding stores it, (V, D)."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, input_range: float) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias.detach().clone())
        self.input_scale = input_range / 127

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.tensor(self.input_scale)
        rounded = _quantize(x, scale, _ZERO_POINT)
        return _multiply(rounded, self.weight.t(), scale, self.scales, _ZERO_POINT, self.bias)


class _Int8ColumnTable(nn.Module):
    """Some columns of W^T, (D, U), of b and of the scales, (U,); W is stored as an embedding stores it, (V, D)."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias.detach().clone())

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        biases, scales = (
            F.embedding(ids, v.unsqueeze(-1)).squeeze(-1) for v in (self.bias, self.scales)
        )
        return F.embedding(ids, self.weight).t(), biases, scales


class _Int8Product(nn.Module):
    """x W^T + b as `_Int8Vocabulary` has it, for a W and b that come with x; the sums are exact integers there too."""

    def __init__(self, input_range: float) -> None:
        super().__init__()
        self.input_scale = input_range / 127

    def forward(self, x: Tensor, weights: Tensor, biases: Tensor, scales: Tensor) -> Tensor:
        scale = torch.tensor(self.input_scale)
        rounded = _quantize(x, scale, _ZERO_POINT)
        return _multiply(rounded, weights, scale, scales, _ZERO_POINT, biases)


class _Int8Embedding(nn.Module):
    """Look-up in a table of int8 rows, (V, D)."""

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


def _quantize(x: Tensor, scale: Tensor, zero_point: int) -> Tensor:
    rounded: Tensor = torch.onnx.ops.symbolic(
        "QuantizeLinear",
        (x, scale, torch.tensor(zero_point, dtype=torch.uint8)),
        dtype=torch.uint8,
        shape=x.shape,
    )
    return rounded


def _multiply(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    weight_scales: Tensor,
    zero_point: int,
    bias: Tensor | None = None,
) -> Tensor:
    """Multiply unsigned rows (R, K) by signed columns (K, N) and scale the sums."""
    inputs = (x, weight, scale, weight_scales, torch.tensor(zero_point, dtype=torch.uint8))
    product: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::MatMulIntegerToFloat",
        inputs if bias is None else (*inputs, None, bias),
        dtype=torch.float32,
        shape=(*x.shape[:-1], weight.shape[1]),
        version=1,
    )
    return product
