"""The self-test runs the graph that it says, and refuses a machine that saturates."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.engine import int8_self_test
from service.engine.int8_self_test import check_int8_products
from service.errors import ConfigError


def test_int8_products_are_exact_on_this_machine() -> None:
    check_int8_products("cpu")


def test_a_machine_that_saturates_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Saturating:
        def run(self, _: None, feeds: dict[str, Any]) -> list[Any]:
            pairs = feeds["x"].astype(np.int64).reshape(len(feeds["x"]), -1, 2).sum(axis=2) * 127
            sums = np.minimum(pairs, 2**15 - 1).sum(axis=1)
            return [np.tile(sums[:, None] - 128 * 64 * 127, (1, 16))]

    monkeypatch.setattr(int8_self_test, "create_session", lambda *_: Saturating())
    with pytest.raises(ConfigError, match="int8 products are not exact"):
        check_int8_products("cpu")


def test_the_graph_is_the_one_that_its_description_says() -> None:
    weights = np.full((64, 16), 127, np.int8)
    weights[:, 1::2] = -127
    constants = {"w": weights, "s": np.array(1, np.float32), "z": np.array(128, np.uint8)}
    node = helper.make_node(
        "MatMulIntegerToFloat", ["x", "w", "s", "s", "z"], ["y"], domain="com.microsoft"
    )
    graph = helper.make_graph(
        [node],
        "int8_self_test",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["M", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 16])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    embedded = zlib.decompress(base64.b64decode(int8_self_test._GRAPH))
    assert embedded == model.SerializeToString(deterministic=True)
