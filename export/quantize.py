"""Layers in int8: weights with one scale a column, activations with one scale a row.

A row's scale comes from that row alone or is fixed at export, so its result never depends on who else is in the batch;
the products are exact integers. Weights are symmetric signed, activations unsigned: the pair that processors multiply
fast. Before the widest matrices, those of the vocabulary and into the feed-forward networks, the scale is fixed: there
the multiplication by a row's own scale would go over most numbers, and the LayerNorm before them keeps the range the
same for every text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.calibration import ActivationRanges

__all__ = ["Int8Layers", "quantize_rows"]

_SMALLEST = 1e-30
"""Stands in for the maximum of a row of zeros, whose scale would divide by nothing."""

_ZERO_POINT = 128
_MATRIX = 2


class Int8Layers:
    """Layers whose products are of int8 numbers."""

    def __init__(self, ranges: ActivationRanges) -> None:
        """Take the largest magnitudes of what LayerNorms give."""
        self._ranges = ranges

    def linear(
        self,
        weight: Tensor,
        bias: Tensor,
        *,
        rectify: bool = False,
        source: nn.Module | None = None,
    ) -> nn.Module:
        """Create x W^T + b; see `export.layers.LayerFactory`."""
        columns = _Int8Columns(weight, bias)
        input_range = self._ranges.inputs.get(source) if source is not None else None
        if input_range is None:
            return _Int8Linear(columns, rectify)
        return _Int8FixedLinear(columns, input_range)

    def parallel(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> nn.Module:
        """Create several products of one input, which is quantized once."""
        pairs = zip(weights, biases, strict=True)
        return _Int8Parallel([_Int8Columns(weight, bias) for weight, bias in pairs])

    def vocabulary(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the output projection, with the table as `embedding` has it."""
        return _Int8Vocabulary(weight, bias, self._ranges.hidden)

    def embedding(self, weight: Tensor) -> nn.Module:
        """Create the look-up in a table of int8 rows."""
        return _Int8Embedding(weight)

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the look-up of columns in the table of `vocabulary`."""
        return _Int8ColumnTable(weight, bias)

    def product(self) -> nn.Module:
        """Create the product of `vocabulary` for columns that are given with its input."""
        return _Int8Product(self._ranges.hidden)


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
    """Rounds each row of x, or of max(x, 0), to unsigned int8 by its own scale."""

    def __init__(self, rectify: bool) -> None:
        super().__init__()
        # What is never negative has the whole range of unsigned numbers for itself, and rounding cuts off what is.
        self.rectify = rectify
        self.zero_point = 0 if rectify else _ZERO_POINT
        self.levels = 255.0 if rectify else 127.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Round rows (R, K), and give their scales (R, 1)."""
        largest = (x if self.rectify else x.abs()).amax(-1, keepdim=True)
        scales = largest.clamp(min=_SMALLEST) / self.levels
        return _quantize_each(x, scales.squeeze(-1), self.zero_point), scales


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

    def multiply_fixed(self, rounded: Tensor, scale: Tensor) -> Tensor:
        """Give the product of rows that all have one scale."""
        return _multiply(rounded, self.weight, scale, self.scales, _ZERO_POINT, self.bias)


class _Int8Linear(nn.Module):
    """x W^T + b."""

    def __init__(self, columns: _Int8Columns, rectify: bool) -> None:
        super().__init__()
        self.quantizer = _RowQuantizer(rectify)
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        rounded, row_scales = self.quantizer(_rows(x))
        output: Tensor = self.columns(rounded, row_scales, self.quantizer.zero_point)
        return output.reshape(*x.shape[:-1], -1)


class _Int8Parallel(nn.Module):
    """x W^T + b for several W and b."""

    def __init__(self, columns: Sequence[_Int8Columns]) -> None:
        super().__init__()
        self.quantizer = _RowQuantizer(rectify=False)
        self.columns = nn.ModuleList(columns)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rounded, row_scales = self.quantizer(_rows(x))
        products = (c(rounded, row_scales, self.quantizer.zero_point) for c in self.columns)
        return tuple(product.reshape(*x.shape[:-1], -1) for product in products)


class _Int8FixedLinear(nn.Module):
    """x W^T + b with a fixed scale for x."""

    def __init__(self, columns: _Int8Columns, input_range: float) -> None:
        super().__init__()
        self.input_scale = input_range / 127
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.tensor(self.input_scale)
        return self.columns.multiply_fixed(_quantize(x, scale, _ZERO_POINT), scale)


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


def _quantize_each(x: Tensor, scales: Tensor, zero_point: int) -> Tensor:
    """Round rows (R, K), each by its own scale (R,)."""
    inputs = [x, scales]
    if zero_point:  # left out, it is 0
        inputs.append(torch.full((x.shape[0],), zero_point, dtype=torch.uint8))
    rounded: Tensor = torch.onnx.ops.symbolic(
        "QuantizeLinear", inputs, {"axis": 0}, dtype=torch.uint8, shape=x.shape
    )
    return rounded


def _rows(x: Tensor) -> Tensor:
    """All positions in one axis, (R, K)."""
    return x if x.dim() == _MATRIX else x.flatten(0, -2)


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
