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
    if operator == "TopK":
        return _top_k(*inputs, **attrs)
    assert operator == "com.microsoft::GroupQueryAttention"
    assert attrs["num_heads"] == attrs["kv_num_heads"]
    assert attrs["do_rotary"] == 0
    lengths, scales = inputs[:7], inputs[12:]
    if scales:
        assert inputs[7:12] == [None] * 5
        assert attrs["kv_cache_bit_width"] == 8
        assert attrs["k_quant_type"] == attrs["v_quant_type"] == "PER_CHANNEL"
        return _int8_attention(*lengths, *scales)
    return _group_query_attention(*lengths)


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


def _int8_attention(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Attend to what is kept in int8, the new position included, each channel of each head with a scale."""
    *others, keys, values, past, total, key_scales, value_scales = inputs
    shape = (1, keys.shape[1], 1, keys.shape[3])
    kept = [
        cache.float() * scales.reshape(shape)
        for cache, scales in ((keys, key_scales), (values, value_scales))
    ]
    qkv = others[0].reshape(len(keys), 3, -1).clone()
    for part, scales in ((1, key_scales), (2, value_scales)):
        qkv[:, part] = (qkv[:, part] / scales).round().clamp(-128, 127) * scales
    mixed, *found = _group_query_attention(qkv, None, None, *kept, past, total)
    new = [
        (cache / scales.reshape(shape)).round().to(torch.int8)
        for cache, scales in zip(found, (key_scales, value_scales), strict=True)
    ]
    return mixed, new[0], new[1]


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


def _top_k(x: Tensor, count: Tensor, axis: int, largest: int, sorted: int) -> tuple[Tensor, Tensor]:  # noqa: A002
    assert (axis, sorted, count.shape) == (1, 1, (1,))
    found = x.sort(dim=1, descending=bool(largest), stable=True)
    return found.values[:, : int(count)], found.indices[:, : int(count)]


def _reshape(x: Tensor, sizes: Tensor) -> Tensor:
    return x.reshape(
        [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes.tolist())]
    )


def _gather(x: Tensor, places: Tensor, axis: int) -> Tensor:
    assert axis == 0
    return x[places.long()]


def _shape(x: Tensor, start: int, end: int) -> Tensor:
    return torch.tensor(x.shape[start:end])


def _dequantize_linear(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    assert (axis, x.dim(), scale.dim()) == (0, 2, 1)
    return x.float() * scale[:, None]


def _fused_mat_mul(x: Tensor, y: Tensor, **how: int) -> Tensor:
    assert how.keys() <= {"transBatchA", "transBatchB", "transB"}
    if how.get("transBatchA"):
        x = x.movedim(0, -2)
    if how.get("transBatchB"):
        y = y.movedim(0, -2)
    return x @ (y.transpose(-2, -1) if how.get("transB") else y)


def _divide(x: Tensor, divisor: Tensor) -> Tensor:
    assert x.dtype == divisor.dtype == torch.int64
    return torch.div(x, divisor, rounding_mode="trunc")


_OPERATORS: dict[str, Any] = {
    "DequantizeLinear": _dequantize_linear,
    "Div": _divide,
    "Expand": lambda x, shape: x.expand(shape.tolist()),
    "Flatten": lambda x: x.flatten(1),
    "Gather": _gather,
    "GatherElements": lambda x, places, axis: x.gather(axis, places.long()),
    "GatherND": _gather_nd,
    "QuantizeLinear": _quantize_linear,
    "Reshape": _reshape,
    "Shape": _shape,
    "com.microsoft::FusedMatMul": _fused_mat_mul,
    "com.microsoft::MatMulIntegerToFloat": _mat_mul_integer_to_float,
}
