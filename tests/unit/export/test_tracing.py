from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from export.tracing import WEIGHTS_FILE, SharedWeights

TABLE = np.arange(40 * 16, dtype=np.float32).reshape(40, 16)
SMALL = np.array([1.0, 2.0], np.float32)


def make_graph(**initializers: np.ndarray) -> onnx.ModelProto:
    """A graph that hands out its initializers."""
    tensors = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    graph = helper.make_graph(
        [helper.make_node("Identity", [name], [f"{name}.out"]) for name in initializers],
        "graph",
        [],
        [
            helper.make_tensor_value_info(f"{name}.out", TensorProto.FLOAT, array.shape)
            for name, array in initializers.items()
        ],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(directory: Path, content: bytes, model: onnx.ModelProto) -> list[np.ndarray]:
    (directory / WEIGHTS_FILE).write_bytes(content)
    onnx.save(model, directory / "graph.onnx")
    outputs: list[np.ndarray] = onnxruntime.InferenceSession(directory / "graph.onnx").run(None, {})
    return outputs


def test_equal_tensors_of_two_graphs_are_stored_once(tmp_path: Path) -> None:
    first, second = make_graph(a=TABLE), make_graph(b=TABLE, c=TABLE + 1)
    stream = io.BytesIO()
    weights = SharedWeights(stream)
    for model in (first, second):
        weights.move_out(model)
    assert len(stream.getvalue()) == 2 * TABLE.nbytes
    assert np.array_equal(run(tmp_path, stream.getvalue(), first), [TABLE])
    assert np.array_equal(run(tmp_path, stream.getvalue(), second), [TABLE, TABLE + 1])


def test_a_table_that_is_there_already_is_turned_at_load(tmp_path: Path) -> None:
    model = make_graph(embedding=TABLE, projection=np.ascontiguousarray(TABLE.T))
    stream = io.BytesIO()
    SharedWeights(stream).move_out(model)
    assert len(stream.getvalue()) == TABLE.nbytes
    embedding, projection = run(tmp_path, stream.getvalue(), model)
    assert np.array_equal(embedding, TABLE)
    assert np.array_equal(projection, TABLE.T)


def test_same_bytes_of_another_shape_or_type_are_another_tensor(tmp_path: Path) -> None:
    model = make_graph(a=TABLE, b=TABLE.reshape(20, 32), c=TABLE.reshape(-1))
    stream = io.BytesIO()
    SharedWeights(stream).move_out(model)
    assert [array.shape for array in run(tmp_path, stream.getvalue(), model)] == [
        (40, 16),
        (20, 32),
        (640,),
    ]


def test_small_tensors_stay_in_the_graph() -> None:
    model = make_graph(small=SMALL)
    stream = io.BytesIO()
    SharedWeights(stream).move_out(model)
    assert not stream.getvalue()
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), SMALL)
