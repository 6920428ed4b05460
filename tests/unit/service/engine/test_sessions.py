from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest

from service.engine.sessions import create_session, int8_saturates
from service.errors import ConfigError


def test_a_provider_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ConfigError, match="`provider` is 'cuda'"):
        create_session(tmp_path / "graph.onnx", "cuda")


def test_libraries_are_loaded_before_cuda_and_a_provider_that_fell_back_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class FallenBack:
        def __init__(self, *args: object, **kwargs: object) -> None:
            events.append("session")

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(
        ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(ort, "preload_dlls", lambda: events.append("libraries"))
    monkeypatch.setattr(ort, "InferenceSession", FallenBack)
    with pytest.raises(ConfigError, match="CPUExecutionProvider runs"):
        create_session(tmp_path / "graph.onnx", "cuda")
    assert events == ["libraries", "session"]


@pytest.mark.parametrize(
    ("flags", "saturates"),
    [
        ("fpu avx2 avx512f avx512_vnni", False),
        ("fpu avx2 avx_vnni", False),
        ("fpu avx2 avx512f", True),
        ("fpu sse4_1", False),
    ],
)
def test_int8_saturates_on_x86_without_vnni(tmp_path: Path, flags: str, saturates: bool) -> None:
    (tmp_path / "cpuinfo").write_text(f"model name\t: x\nflags\t\t: {flags}\n")
    assert int8_saturates(tmp_path / "cpuinfo") is saturates


def test_int8_is_trusted_where_nothing_is_known(tmp_path: Path) -> None:
    assert int8_saturates(tmp_path / "missing") is False
