"""Layers in int8: weights with one scale a column, activations with one scale a row.

A row's scale comes from that row alone or is fixed at export, so its result never depends on who else is in the batch;
the products are exact integers. Weights are symmetric signed, activations unsigned: the pair that processors multiply
fast. Where the range of an input was measured (`calibration`), its scale is fixed and its channels are evened out
(`smoothing`): nothing then has to look for the largest number of each row, nor multiply by its scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from export.layers import join_chunks
from export.operators import dequantize_rows, reshape, take
from export.smoothing import FixedInput

__all__ = ["Int8Layers", "quantize_rows"]

_SMALLEST = 1e-30
"""Stands in for the maximum of a row of zeros, whose scale would divide by nothing."""

_KEPT_MARGIN = 1.25
"""Room in a cache for keys and values that are larger than the text showed; what is beyond it is cut."""

_ZERO_POINT = 128
_MATRIX = 2


class Int8Layers:
    """Layers whose products are of int8 numbers."""

    def __init__(
        self,
        hidden: float,
        fixed: Mapping[nn.Module, FixedInput] | None = None,
        kept: Mapping[nn.Module, Tensor] | None = None,
    ) -> None:
        """Take what is known of the model's activations.

        Args:
            hidden: Largest magnitude of the decoder's output.
            fixed: Layers whose input has a fixed scale.
            kept: Largest magnitudes of the channels that caches of int8 keep, by the layer that makes them.
        """
        self._hidden = hidden
        self._fixed = fixed or {}
        self._kept = kept or {}

    def linear(
        self,
        weight: Tensor,
        bias: Tensor,
        *,
        rectify: bool = False,
        source: nn.Module | None = None,
    ) -> nn.Module:
        """Create x W^T + b; see `export.layers.LayerFactory`."""
        return _Single(self.parallel([weight], [bias], rectify=rectify, source=source))

    def parallel(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        *,
        rectify: bool = False,
        source: nn.Module | None = None,
    ) -> nn.Module:
        """Create several products of one input, which is quantized once."""
        fixed = self._fixed.get(source) if source is not None else None
        if fixed is None:
            return _RowScaled(_RowQuantizer(rectify), _columns(weights, biases))
        if fixed.factors is not None:
            weights = [weight * fixed.factors for weight in weights]
        return _FixedScale(_FixedQuantizer(fixed, rectify), _columns(weights, biases))

    def vocabulary(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the output projection, with the table as `embedding` has it."""
        return _Int8Vocabulary(weight, bias, self._hidden)

    def embedding(self, weight: Tensor) -> nn.Module:
        """Create the look-up in a table of int8 rows."""
        return _Int8Embedding(weight)

    def columns(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """Create the look-up of columns in the table of `vocabulary`."""
        return _Int8ColumnTable(weight, bias)

    def cache_scales(self, source: nn.Module) -> Tensor | None:
        """Give the scales of the channels that a cache keeps."""
        largest = self._kept.get(source)
        return None if largest is None else _KEPT_MARGIN * largest.clamp(min=_SMALLEST) / 127

    def list_product(self) -> nn.Module:
        """Create the product of `vocabulary` for columns that are given with its input."""
        return _Int8ListProduct(self._hidden)


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
        self.rectify = rectify
        self.zero_point, self.levels = _unsigned(rectify)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Round rows (R, K), and give their scales (R, 1)."""
        largest = (x if self.rectify else x.abs()).amax(-1, keepdim=True)
        scales = largest.clamp(min=_SMALLEST) / self.levels
        return _quantize_each(x, scales.squeeze(-1), self.zero_point), scales


class _FixedQuantizer(nn.Module):
    """Rounds x, or max(x, 0), to unsigned int8 with one scale for all rows, after its channels were evened out."""

    reciprocals: Tensor

    def __init__(self, fixed: FixedInput, rectify: bool) -> None:
        super().__init__()
        self.zero_point, levels = _unsigned(rectify)
        self.scale = fixed.largest / levels
        self.divides = fixed.factors is not None
        if fixed.factors is not None:
            self.register_buffer("reciprocals", 1 / fixed.factors)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Round (..., K), and give the scale."""
        scale = torch.tensor(self.scale)
        return _quantize(x * self.reciprocals if self.divides else x, scale, self.zero_point), scale


def _unsigned(rectify: bool) -> tuple[int, float]:
    """Give the zero point and the levels on one side of it.

    What is never negative has the whole range of unsigned numbers for itself, and rounding cuts off what is.
    """
    return (0, 255.0) if rectify else (_ZERO_POINT, 127.0)


class _Int8Columns(nn.Module):
    """W^T as the product reads it, (K, N), and b."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.register_buffer("weight", rounded.t().contiguous())
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias.detach().clone())


def _columns(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[_Int8Columns]:
    return [_Int8Columns(weight, bias) for weight, bias in zip(weights, biases, strict=True)]


class _RowScaled(nn.Module):
    """x W^T + b for several W and b, each row of x with a scale of its own."""

    def __init__(self, quantizer: _RowQuantizer, columns: list[_Int8Columns]) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.columns = columns
        self.weights = nn.ModuleList(columns)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rounded, row_scales = self.quantizer(_rows(x))
        one, outputs = torch.tensor(1.0), []
        for c in self.columns:
            product = _multiply(rounded, c.weight, one, c.scales, self.quantizer.zero_point)
            outputs.append((product * row_scales + c.bias).reshape(*x.shape[:-1], -1))
        return tuple(outputs)


class _FixedScale(nn.Module):
    """x W^T + b for several W and b, with a fixed scale for x."""

    def __init__(self, quantizer: _FixedQuantizer, columns: list[_Int8Columns]) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.columns = columns
        self.weights = nn.ModuleList(columns)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rounded, scale = self.quantizer(x)
        zero_point = self.quantizer.zero_point
        return tuple(
            _multiply(rounded, c.weight, scale, c.scales, zero_point, c.bias) for c in self.columns
        )


class _Single(nn.Module):
    """The only one of several products."""

    def __init__(self, products: nn.Module) -> None:
        super().__init__()
        self.products = products

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.products(x)[0]
        return output


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
    """Columns of W^T, (G, D, U), of b and of the scales, (G, 1, U); W is stored as an embedding stores it, (V, D)."""

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
        biases, scales = take(self.bias, ids), take(self.scales, ids)
        return take(self.weight, ids).transpose(1, 2), biases.unsqueeze(1), scales.unsqueeze(1)


class _Int8ListProduct(nn.Module):
    """x W^T + b as `_Int8Vocabulary` has it, for W and b that come with x; the sums are exact integers there too."""

    def __init__(self, input_range: float) -> None:
        super().__init__()
        self.input_scale = input_range / 127

    def forward(  # noqa: PLR0913, PLR0917 - as the graph has them
        self,
        x: Tensor,
        frequent: tuple[Tensor, ...],
        chunks: tuple[Tensor, ...],
        lane_rows: Tensor,
        chunk_rows: Tensor,
        lane_chunks: Tensor,
    ) -> Tensor:
        scale = torch.tensor(self.input_scale)
        rows = reshape(_quantize(x, scale, _ZERO_POINT), 0, -1)
        weights, biases, scales = frequent
        common = _multiply(take(rows, lane_rows), weights, scale, scales, _ZERO_POINT, biases)
        weights, biases, scales = chunks
        parts = _multiply(take(rows, chunk_rows), weights, scale, scales, _ZERO_POINT)
        return torch.cat([common, join_chunks(parts + biases, lane_chunks)], -1)


class _Int8Embedding(nn.Module):
    """Look-up in a table of int8 rows, (V, D)."""

    weight: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        rounded, scales = quantize_rows(weight)
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales)

    def forward(self, ids: Tensor, factors: Tensor) -> Tensor:
        rows, scales = take(self.weight, ids), take(self.scales, ids) * factors
        if ids.dim() == 1:
            return dequantize_rows(rows, scales)
        return rows.to(torch.float32) * scales.unsqueeze(-1)


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
    """Multiply unsigned rows (.., R, K) by signed columns (.., K, N) and scale the sums."""
    inputs = (x, weight, scale, weight_scales, torch.tensor(zero_point, dtype=torch.uint8))
    product: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::MatMulIntegerToFloat",
        inputs if bias is None else (*inputs, None, bias),
        dtype=torch.float32,
        shape=(*x.shape[:-1], weight.shape[-1]),
        version=1,
    )
    return product
