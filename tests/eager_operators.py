"""The operators that graphs name and torch does not have, computed by torch: graphs run without an export.

Written from the operators' documents (https://onnx.ai/onnx/operators/ and onnxruntime's ContribOperators.md), slow and
plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def symbolic(operator: str, inputs: Sequence[Tensor | None], attrs: Any = None, **_: Any) -> Tensor:
    """Stand in for `torch.onnx.ops.symbolic`."""
    result: Tensor = _OPERATORS[operator](*inputs, **(attrs or {}))
    return result


def symbolic_multi_out(
    operator: str, inputs: Sequence[Tensor | None], attrs: dict[str, Any], **_: Any
) -> tuple[Tensor, ...]:
    """Stand in for `torch.onnx.ops.symbolic_multi_out`."""
    assert operator == "com.microsoft::GroupQueryAttention"
    assert attrs["num_heads"] == attrs["kv_num_heads"]
    assert attrs["do_rotary"] == 0
    return _group_query_attention(*inputs)


def _group_query_attention(  # noqa: PLR0913, PLR0917 - the operator's inputs
    qkv: Tensor,
    no_key: None,
    no_value: None,
    keys: Tensor,
    values: Tensor,
    past: Tensor,
    total: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    assert keys.shape[2] == total.item()
    num_heads, head_size = keys.shape[1], keys.shape[3]
    query, key, value = qkv.reshape(len(qkv), 3, num_heads, head_size).unbind(1)  # (R, H, Dh)
    keys, values, mixed = keys.clone(), values.clone(), torch.empty_like(query)
    for row, length in enumerate(past.tolist()):
        keys[row, :, length], values[row, :, length] = key[row], value[row]
        scores = torch.einsum("hd,htd->ht", query[row], keys[row, :, : length + 1])
        weights = (scores / head_size**0.5).softmax(-1)
        mixed[row] = torch.einsum("ht,htd->hd", weights, values[row, :, : length + 1])
    return mixed.reshape(len(qkv), 1, -1), keys, values


def _quantize_linear(
    x: Tensor, scale: Tensor, zero_point: Tensor | None = None, axis: int = 1
) -> Tensor:
    if zero_point is None:
        zero_point = torch.zeros((), dtype=torch.uint8)
    if scale.dim():
        shape = [1] * x.dim()
        shape[axis] = -1
        scale, zero_point = (
            scale.reshape(shape),
            zero_point.reshape(shape if zero_point.dim() else ()),
        )
    return ((x / scale).round() + zero_point.float()).clamp(0, 255).to(torch.uint8)


def _mat_mul_integer_to_float(  # noqa: PLR0913, PLR0917 - the operator's inputs
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    weight_scales: Tensor,
    zero_point: Tensor,
    weight_zero_point: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    assert weight_zero_point is None
    sums = (x.int() - zero_point.int()) @ weight.int()
    product = sums.float() * (scale * weight_scales)
    return product if bias is None else product + bias


def _gather_nd(data: Tensor, indices: Tensor, batch_dims: int) -> Tensor:
    assert batch_dims == 1
    assert indices.shape[-1] == 1
    return torch.stack([row[chosen[:, 0]] for row, chosen in zip(data, indices, strict=True)])


def _divide(x: Tensor, divisor: Tensor) -> Tensor:
    assert x.dtype == divisor.dtype == torch.int64
    return torch.div(x, divisor, rounding_mode="trunc")


_OPERATORS: dict[str, Any] = {
    "Div": _divide,
    "Flatten": lambda x: x.flatten(1),
    "GatherND": _gather_nd,
    "QuantizeLinear": _quantize_linear,
    "com.microsoft::MatMulIntegerToFloat": _mat_mul_integer_to_float,
}
