"""Small graphs do what their descriptions say, and are the ones that the `onnx` library writes from them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from service.engine import device_graphs
from service.engine.device_graphs import DeviceGraphs
from service.engine.device_memory import DeviceBlock
from service.engine.sessions import RUN_ERRORS
from tests.device_arrays import CPU, from_device, to_device

INT16, INT64 = TensorProto.INT16, TensorProto.INT64


@pytest.fixture(scope="module")
def graphs() -> DeviceGraphs:
    return DeviceGraphs("cpu", CPU)


@pytest.fixture(params=[np.float16, np.float32])
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


def random_array(dtype: Any, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_a_new_block_holds_zeros(graphs: DeviceGraphs) -> None:
    words = from_device(graphs.create_block(1000).words())
    assert words.shape == (500,)
    assert not words.any()


def test_rows_are_taken_in_any_order_any_number_of_times(graphs: DeviceGraphs, dtype: Any) -> None:
    x = random_array(dtype, 3, 5, 2, 4, 6)
    order = np.array([4, 0, 0])
    found = graphs.select(to_device(x), order, 4, DeviceBlock(CPU, 10_000))
    assert found.dtype is dtype
    np.testing.assert_array_equal(from_device(found), x[:, order])


@pytest.mark.parametrize("num_positions", [2, 7])
def test_positions_are_cut_off_or_the_last_is_repeated(
    graphs: DeviceGraphs, dtype: Any, num_positions: int
) -> None:
    x = random_array(dtype, 3, 5, 2, 4, 6)
    found = graphs.select(to_device(x), np.array([1, 3]), num_positions, DeviceBlock(CPU, 10_000))
    positions = np.minimum(np.arange(num_positions), 3)
    np.testing.assert_array_equal(from_device(found), x[:, [1, 3]][:, :, :, positions])


def test_new_rows_are_put_behind_the_others(graphs: DeviceGraphs, dtype: Any) -> None:
    x, new = random_array(dtype, 3, 2, 2, 4, 6), random_array(dtype, 3, 3, 2, 8, 6)
    order = np.array([1, 4, 2])
    found = graphs.join(to_device(x), to_device(new), order, 5, DeviceBlock(CPU, 10_000))
    both = np.concatenate([x[:, :, :, [0, 1, 2, 3, 3]], new[:, :, :, :5]], axis=1)
    np.testing.assert_array_equal(from_device(found), both[:, order])


def test_a_row_that_is_not_there_is_an_error_that_is_known(graphs: DeviceGraphs) -> None:
    x = to_device(random_array(np.float32, 3, 5, 2, 4, 6))
    with pytest.raises(RUN_ERRORS, match="out of data bounds"):
        graphs.select(x, np.array([7]), 4, DeviceBlock(CPU, 10_000))


def test_the_mask_is_one_on_real_tokens(graphs: DeviceGraphs) -> None:
    mask = graphs.mask(np.array([1, 3, 2]), 3, DeviceBlock(CPU, 100))
    assert from_device(mask).tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]


def value(name: str, axes: Sequence[str | int], dtype: int = INT16) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, axes)


def gather(data: str, indices: str, output: str, axis: int) -> onnx.NodeProto:
    return helper.make_node("Gather", [data, indices], [output], axis=axis)


ROWS, ORDER = value("x", ["P", "R", "H", "C", "W"]), value("order", ["N"], INT64)
POSITIONS = value("positions", ["M"], INT64)
RESULT = value("y", ["P", "N", "H", "M", "W"])

GRAPHS: dict[str, tuple[list[Any], list[Any], Any]] = {
    "_CLEAR": (
        [
            helper.make_node(
                "ConstantOfShape",
                ["shape"],
                ["y"],
                value=helper.make_tensor("zero", INT16, [1], [0]),
            )
        ],
        [value("shape", [1], INT64)],
        value("y", ["N"]),
    ),
    "_MOVE": ([gather("x", "order", "y", 1)], [ROWS, ORDER], value("y", ["P", "N", "H", "C", "W"])),
    "_FIT": (
        [gather("x", "order", "moved", 1), gather("moved", "positions", "y", 3)],
        [ROWS, ORDER, POSITIONS],
        RESULT,
    ),
    "_JOIN": (
        [
            gather("x", "positions", "fit", 3),
            gather("new", "new_positions", "new_fit", 3),
            helper.make_node("Concat", ["fit", "new_fit"], ["all"], axis=1),
            gather("all", "order", "y", 1),
        ],
        [
            ROWS,
            POSITIONS,
            value("new", ["P", "B", "H", "S", "W"]),
            value("new_positions", ["M"], INT64),
            ORDER,
        ],
        RESULT,
    ),
    "_MASK": (
        [
            helper.make_node("Unsqueeze", ["lengths", "axis"], ["column"]),
            helper.make_node("Less", ["positions", "column"], ["real"]),
            helper.make_node("Cast", ["real"], ["y"], to=INT64),
        ],
        [
            value("positions", ["S"], INT64),
            value("lengths", ["B"], INT64),
            value("axis", [1], INT64),
        ],
        value("y", ["B", "S"], INT64),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_graph_is_the_one_that_its_description_says(name: str) -> None:
    nodes, inputs, output = GRAPHS[name]
    graph = helper.make_graph(nodes, name[1:].lower(), inputs, [output])
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    embedded = zlib.decompress(base64.b64decode(getattr(device_graphs, name)))
    assert embedded == model.SerializeToString(deterministic=True)
