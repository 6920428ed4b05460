"""Start-up: ONNX Runtime sessions as the engine needs them.

One thread in a session: several workers share it, each on its own core. Results must not depend on the batch and must
not change between runs, so nothing that adapts to shapes is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export import signature
from service.errors import ConfigError

__all__ = [
    "PROVIDERS",
    "RUN_ERRORS",
    "check_provider",
    "create_session",
    "int8_saturates",
    "session_faults",
]

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Names of settings and of ONNX Runtime."""

RUN_ERRORS = (
    ort_errors.EPFail,
    ort_errors.EngineError,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    RuntimeError,
)
"""What `Run` raises; they have no common base. With IO binding it is a plain `RuntimeError`, whatever happened."""

_LOAD_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
"""What loading raises; they have no common base."""

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}
"""Element types, as ONNX Runtime and the signature name them."""

_VNNI_FLAGS = {"avx512_vnni", "avx_vnni"}
_SATURATING_FLAGS = {"avx2"}


def check_provider(provider: str) -> None:
    """Refuse a provider that this ONNX Runtime was not built with.

    Raises:
        ConfigError: It was not.
    """
    if PROVIDERS[provider] not in ort.get_available_providers():
        raise ConfigError(
            f"`provider` is {provider!r}, but this ONNX Runtime has only "
            f"{', '.join(ort.get_available_providers())}."
        )


def create_session(graph: Path | bytes, provider: str) -> ort.InferenceSession:
    """Load a graph, from a file or as it stands in one.

    Raises:
        ConfigError: ONNX Runtime does not take the graph; or the provider that was asked for is not the one that
            runs: ONNX Runtime falls back silently.
    """
    check_provider(provider)
    wanted = PROVIDERS[provider]
    if provider == "cuda":
        ort.preload_dlls()  # CUDA and cuDNN as the extra `gpu` installs them, which no library path knows
    try:
        session = ort.InferenceSession(
            graph,
            _session_options(),
            providers=[wanted],
            disabled_optimizers=list(signature.DISABLED_OPTIMIZERS),
        )
    except _LOAD_ERRORS as error:
        name = graph if isinstance(graph, Path) else "a built-in graph"
        raise ConfigError(
            f"{name}: ONNX Runtime {ort.__version__} does not take it: {error}."
        ) from error
    running = session.get_providers()[0]
    if running != wanted:
        raise ConfigError(f"`provider` is {provider!r}, but {running} runs.")
    return session


def session_faults(
    session: ort.InferenceSession,
    name: str,
    inputs: Sequence[signature.TensorSpec],
    outputs: Sequence[signature.TensorSpec],
) -> Iterator[str]:
    """Compare a graph with the signature that the engine binds its arrays by."""
    for what, nodes, expected in (
        ("input", session.get_inputs(), inputs),
        ("output", session.get_outputs(), outputs),
    ):
        found = [
            signature.TensorSpec(node.name, _DTYPES.get(node.type, node.type), tuple(node.shape))
            for node in nodes
        ]
        yield from signature.tensor_faults(f"{name}: {what}", found, expected)


def _session_options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    # A pattern is kept for every combination of shapes, and here every step may have its own.
    options.enable_mem_pattern = False
    options.log_severity_level = (
        4  # What is fatal: errors are raised, and standard error is for lines of JSON.
    )
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if int8_saturates():
        for key, value in signature.SATURATING_CPU_CONFIG.items():
            options.add_session_config_entry(key, value)
    return options


def int8_saturates(cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether u8 x s8 products overflow 16 bits on this processor: x86 without VNNI."""
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = next(
        (set(line.split()) for line in text.splitlines() if line.startswith("flags")), set()
    )
    return bool(flags & _SATURATING_FLAGS) and not flags & _VNNI_FLAGS
