"""How fast this machine multiplies matrices, all cores at once: the roof over every engine.

The product is ONNX Runtime's own, with nothing before or behind it: u8 x s8 with one scale for the input, or float32.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.products import Shape, num_operations
from export.bundle import Precision

__all__ = ["gemm_rate"]

_SECONDS = 0.25
_LEAST_RUNS = 8


def gemm_rate(shape: Shape, precision: Precision, num_cores: int) -> float:
    """Operations a second of one core while the others do the same.

    Args:
        shape: (M, K, N).
        precision: Of the numbers that are multiplied.
        num_cores: How many threads multiply, each for itself.
    """
    session = _session(shape, precision)
    start = threading.Barrier(num_cores)
    with ThreadPoolExecutor(num_cores) as pool:
        jobs = [pool.submit(_run, session, shape, precision, start) for _ in range(num_cores)]
        seconds = statistics.mean(job.result() for job in jobs)
    return num_operations(shape) / seconds


def _run(
    session: ort.InferenceSession, shape: Shape, precision: Precision, start: threading.Barrier
) -> float:
    """The median time of one product."""
    rows, inner, columns = shape
    chance = np.random.default_rng(0)
    if precision == "int8":
        x = chance.integers(0, 256, (rows, inner)).astype(np.uint8)
    else:
        x = chance.standard_normal((rows, inner)).astype(np.float32)
    y = np.empty((rows, columns), np.float32)
    binding = session.io_binding()
    for bind, name, array in ((binding.bind_input, "x", x), (binding.bind_output, "y", y)):
        bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    session.run_with_iobinding(binding)
    start.wait()
    samples: list[float] = []
    ends_at = time.perf_counter() + _SECONDS
    while len(samples) < _LEAST_RUNS or time.perf_counter() < ends_at:
        began = time.perf_counter()
        session.run_with_iobinding(binding)
        samples.append(time.perf_counter() - began)
    return statistics.median(samples)


def _session(shape: Shape, precision: Precision) -> ort.InferenceSession:
    _, inner, columns = shape
    chance = np.random.default_rng(1)
    if precision == "int8":
        weights = chance.integers(-127, 128, (inner, columns)).astype(np.int8)
        constants = {
            "w": weights,
            "x_scale": np.float32(0.02),
            "w_scales": np.full(columns, 0.01, np.float32),
            "x_zero": np.uint8(128),
            "b": np.zeros(columns, np.float32),
        }
        inputs = ["x", "w", "x_scale", "w_scales", "x_zero", "", "b"]
        node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft")
    else:
        constants = {"w": chance.standard_normal((inner, columns)).astype(np.float32)}
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    dtype = TensorProto.UINT8 if precision == "int8" else TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", dtype, ["M", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", columns])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
