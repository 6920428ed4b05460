"""Operators of ONNX and ONNX Runtime that torch has no name for, or that its exporter spells in several.

Every operator of a graph costs about a microsecond, whatever it computes, and a step of a lone sentence has a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "axis_size",
    "dequantize_rows",
    "divide",
    "gather_blocks",
    "mix_heads",
    "ones_like_block",
    "reshape",
    "score_heads",
    "take",
    "take_best",
]

_KEEP, _REST = 0, -1


def reshape(x: Tensor, *sizes: int) -> Tensor:
    """Give x other axes: 0 keeps the axis in its place, -1 takes what is left. Nothing is computed from shapes."""
    shape = [x.shape[axis] if size == _KEEP else size for axis, size in enumerate(sizes)]
    if _REST in shape:
        shape[shape.index(_REST)] = x.numel() // math.prod(size for size in shape if size != _REST)
    reshaped: Tensor = torch.onnx.ops.symbolic(
        "Reshape", (x, torch.tensor(sizes)), dtype=x.dtype, shape=shape
    )
    return reshaped


def axis_size(x: Tensor, axis: int) -> Tensor:
    """Give the length of an axis as a tensor (1,)."""
    size: Tensor = torch.onnx.ops.symbolic(
        "Shape", (x,), {"start": axis, "end": axis + 1}, dtype=torch.int64, shape=(1,)
    )
    return size


def ones_like_block(x: Tensor) -> Tensor:
    """Give ones of the shape of the last two axes of x."""
    axes = x.dim()
    shape = torch.onnx.ops.symbolic(
        "Shape", (x,), {"start": axes - 2, "end": axes}, dtype=torch.int64, shape=(2,)
    )
    ones: Tensor = torch.onnx.ops.symbolic(
        "Expand", (torch.ones((), dtype=x.dtype), shape), dtype=x.dtype, shape=x.shape[-2:]
    )
    return ones


def take(x: Tensor, places: Tensor) -> Tensor:
    """Give x[places] of the first axis, (*places.shape, *x.shape[1:])."""
    taken: Tensor = torch.onnx.ops.symbolic(
        "Gather",
        (x, places),
        {"axis": 0},
        dtype=x.dtype,
        shape=(*places.shape, *x.shape[1:]),
    )
    return taken


def divide(x: Tensor, divisor: Tensor) -> Tensor:
    """Divide integers that are not negative, and drop the remainder."""
    quotient: Tensor = torch.onnx.ops.symbolic(
        "Div", (x, divisor), dtype=torch.int64, shape=x.shape
    )
    return quotient


def take_best(
    x: Tensor, count: Tensor, size: int, *, largest: bool = True
) -> tuple[Tensor, Tensor]:
    """Give the best numbers of each row and their places, best first, equal ones in the order of their places.

    Args:
        x: Shape (R, N).
        count: How many. Shape (1,).
        size: The same as the exporter knows it.
        largest: Whether the largest are the best.
    """
    shape = (x.shape[0], size)
    values, places = torch.onnx.ops.symbolic_multi_out(
        "TopK",
        (x, count),
        {"axis": 1, "largest": int(largest), "sorted": 1},
        dtypes=(x.dtype, torch.int64),
        shapes=(shape, shape),
    )
    return values, places


def gather_blocks(blocks: Tensor, chosen: Tensor) -> Tensor:
    """Give the chosen blocks of each row side by side: (R, W, L) and (R, N) to (R, N * L)."""
    num_rows, num_chosen = chosen.shape
    length = blocks.shape[2]
    found = torch.onnx.ops.symbolic(
        "GatherND",
        (blocks, chosen.unsqueeze(-1)),
        {"batch_dims": 1},
        dtype=blocks.dtype,
        shape=(num_rows, num_chosen, length),
    )
    flat: Tensor = torch.onnx.ops.symbolic(
        "Flatten", (found,), dtype=blocks.dtype, shape=(num_rows, num_chosen * length)
    )
    return flat


def score_heads(query: Tensor, key: Tensor) -> Tensor:
    """Multiply each head's queries by its keys where they stand: (S, B, H, Dh) twice to (B, H, S, S)."""
    length, batch, heads, _ = query.shape
    how = {"transBatchA": 1, "transBatchB": 1, "transB": 1}
    return _fused_product(query, key, how, (batch, heads, length, length))


def mix_heads(weights: Tensor, value: Tensor) -> Tensor:
    """Multiply each head's weights by its values where they stand: (B, H, S, S) and (S, B, H, Dh) to (B, H, S, Dh)."""
    return _fused_product(weights, value, {"transBatchB": 1}, (*weights.shape[:3], value.shape[3]))


def _fused_product(x: Tensor, y: Tensor, how: dict[str, int], shape: Sequence[int]) -> Tensor:
    product: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::FusedMatMul", (x, y), {**how}, dtype=x.dtype, shape=shape, version=1
    )
    return product


def dequantize_rows(x: Tensor, scales: Tensor) -> Tensor:
    """Give int8 rows (R, K) times the scale of each, (R,), as float32."""
    vectors: Tensor = torch.onnx.ops.symbolic(
        "DequantizeLinear", (x, scales), {"axis": 0}, dtype=torch.float32, shape=x.shape
    )
    return vectors
