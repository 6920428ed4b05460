"""From a torch module to an ONNX file: names and axes of the signature, weights in one shared file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data
from torch import nn

from export.signature import (
    VOCAB_BLOCK,
    TensorSpec,
    cache_dtype,
    chunk_inputs,
    decoder_inputs,
    frequent_inputs,
    shortlist_decoder_inputs,
)
from model.config import TransformerConfig

__all__ = [
    "OPSET",
    "WEIGHTS_FILE",
    "SharedWeights",
    "columns_example",
    "decoder_example",
    "encoder_example",
    "shortlist_decoder_example",
    "to_onnx",
]

OPSET = 21
WEIGHTS_FILE = "weights.bin"

_INLINE_BYTES = 1024
_ALIGNMENT = 64


class SharedWeights:
    """One file of tensors for several graphs; equal tensors are stored once.

    A matrix that is stored already the other way round, such as an output projection tied to an embedding, is
    transposed when the graph is loaded.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._offsets: dict[str, int] = {}

    def move_out(self, model: onnx.ModelProto) -> None:
        """Replace the large initializers of a graph by references into the file."""
        for tensor in list(model.graph.initializer):
            array = numpy_helper.to_array(tensor)
            if array.nbytes < _INLINE_BYTES:
                continue
            if _key(array) not in self._offsets and _key(array.T) in self._offsets:
                array = array.T
                _turn(model, tensor)
            self._refer(tensor, array)

    def _refer(self, tensor: onnx.TensorProto, array: np.ndarray) -> None:
        """Turn an initializer into a reference to `array` in the file, which is written unless it is there."""
        key, content = _key(array), np.ascontiguousarray(array).tobytes()
        if key not in self._offsets:
            self._stream.write(b"\0" * (-self._stream.tell() % _ALIGNMENT))
            self._offsets[key] = self._stream.tell()
            self._stream.write(content)
        tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type))
        tensor.dims.extend(array.shape)
        tensor.raw_data = content  # `set_external_data` asks for it
        set_external_data(tensor, WEIGHTS_FILE, self._offsets[key], len(content))
        tensor.ClearField("raw_data")


def _key(array: np.ndarray) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"{array.dtype}{array.shape}{digest}"


def _turn(model: onnx.ModelProto, tensor: onnx.TensorProto) -> None:
    """Let a graph make the matrix `tensor` from its transpose, which takes another name."""
    node = onnx.helper.make_node(
        "Transpose", [f"{tensor.name}.transposed"], [tensor.name], perm=[1, 0]
    )
    model.graph.node.insert(0, node)
    tensor.name = node.input[0]


def to_onnx(
    graph: nn.Module,
    example: tuple[Any, ...],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> onnx.ModelProto:
    """Trace a module and give its graph exactly the names and axes of the signature."""
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            graph.eval(),
            example,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=_dynamic_shapes(example, iter(inputs)),
            input_names=[spec.name for spec in inputs],
            output_names=[spec.name for spec in outputs],
            external_data=False,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _forget_origin(model)
    for values, specs in ((model.graph.input, inputs), (model.graph.output, outputs)):
        del values[:]
        values.extend(_value_info(spec) for spec in specs)
    onnx.checker.check_model(model, check_custom_domain=False)
    return model


def _dynamic_shapes(example: Any, specs: Iterator[TensorSpec]) -> Any:
    """Name the dynamic axes of an example's tensors, in its own nesting."""
    if isinstance(example, torch.Tensor):
        axes = next(specs).axes
        return {index: axis for index, axis in enumerate(axes) if isinstance(axis, str)}
    return type(example)(_dynamic_shapes(item, specs) for item in example)


def _value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    return onnx.helper.make_tensor_value_info(spec.name, dtype, spec.axes)


def _forget_origin(model: onnx.ModelProto) -> None:
    """Drop the notes on where each node came from: file names and stack traces of the exporting machine."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for value in model.graph.value_info:
        del value.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = node.name = ""
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
        tensor.doc_string = ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress lines and its notes to its own developers off the terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def encoder_example() -> tuple[torch.Tensor, ...]:
    """Make inputs for tracing the encoder."""
    return torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64)


def decoder_example(
    config: TransformerConfig, precision: str = "float32", *, int8_caches: bool = False
) -> tuple[Any, ...]:
    """Make inputs in which no two axes have the same length, so that none is taken for another."""
    rows, sentences, source, capacity, lanes, edits, wanted = 7, 2, 5, 11, 4, 3, 9
    heads, head_size = config.num_heads, config.head_size
    dtype = torch.float16 if cache_dtype(precision) == "float16" else torch.float32
    own_dtype = torch.int8 if int8_caches else dtype

    def ints(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    caches = [
        (
            torch.zeros(rows, heads, capacity, head_size, dtype=own_dtype),
            torch.zeros(rows, heads, capacity, head_size, dtype=own_dtype),
            torch.zeros(sentences, heads, head_size, source, dtype=dtype),
            torch.zeros(sentences, heads, source, head_size, dtype=dtype),
        )
        for _ in range(config.decoder_layers)
    ]
    return (
        ints(rows),
        ints(rows, dtype=torch.int32),
        torch.tensor(capacity, dtype=torch.int32),
        ints(sentences, source),
        ints(sentences, heads, lanes),
        ints(rows, heads),
        torch.tensor([6]),
        ints(edits),
        torch.ones(edits),
        torch.zeros(edits),
        ints(wanted),
        caches,
    )


def shortlist_decoder_example(
    config: TransformerConfig, precision: str, *, int8_caches: bool = False
) -> tuple[Any, ...]:
    """Add columns and lists to `decoder_example`."""
    common = decoder_example(config, int8_caches=int8_caches)
    sizes = {"F": 10 * VOCAB_BLOCK, "G": 8, "P": 12, "W": 46, "J": 4}
    sizes |= {"R": len(common[0]), "B": len(common[3])}
    dtypes = {"int8": torch.int8, "float32": torch.float32, "int64": torch.int64}

    def zeros(specs: Sequence[TensorSpec]) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.zeros(
                [axis if isinstance(axis, int) else sizes[axis] for axis in spec.axes],
                dtype=dtypes[spec.dtype],
            )
            for spec in specs
        )

    frequent = frequent_inputs(config.d_model, precision)
    chunks = chunk_inputs(config.d_model, precision)
    known = {spec.name for spec in (*frequent, *chunks, *decoder_inputs(1, 1, 1))}
    specs = shortlist_decoder_inputs(1, 1, 1, config.d_model, precision)
    places = [spec for spec in specs if spec.name not in known]
    return (*common, zeros(frequent), zeros(chunks), *zeros(places))


def columns_example() -> tuple[torch.Tensor, ...]:
    """Make the input for tracing the look-up of columns."""
    return (torch.zeros(3, 5, dtype=torch.int64),)
