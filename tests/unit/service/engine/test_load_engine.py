from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from export.bundle import Bundle, Precision
from service.engine import load_engine as module
from service.engine.device_memory import Device
from service.engine.load_engine import check_precision, load_engine
from service.errors import ConfigError
from tests.builders import make_manifest


def bundle_of(precision: Precision, **fields: Any) -> Bundle:
    return Bundle(directory=Path("/b"), manifest=make_manifest(precision=precision, **fields))


@pytest.mark.parametrize(
    ("provider", "precision", "advice"),
    [
        ("cuda", "int8", "--precision float16"),
        ("cuda", "float32", "--precision float16"),
        ("cpu", "float16", "--precision int8"),
    ],
)
def test_a_precision_that_the_provider_does_not_run_is_refused(
    provider: str, precision: Precision, advice: str
) -> None:
    with pytest.raises(ConfigError, match=f"/b: .*{provider}.*{precision}.*{advice}"):
        check_precision(bundle_of(precision), provider)
    with pytest.raises(ConfigError):
        load_engine(bundle_of(precision), provider=provider)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_cpu_runs_arrays_of_this_process(
    monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "load_onnx_engine", lambda _, **given: calls.append(given))
    load_engine(bundle_of(precision), max_encode_tokens=100, use_shortlist=False)
    assert calls == [{"max_encode_tokens": 100, "use_shortlist": False}]


def test_cuda_runs_memory_of_the_device_and_says_that_a_shortlist_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "load_device_engine", lambda _, **given: calls.append(given))
    with caplog.at_level("INFO"):
        load_engine(bundle_of("float16"), provider="cuda")
        assert not caplog.records
        load_engine(bundle_of("float16", shortlist="shortlist.npz"), provider="cuda")
    assert calls[0] == {
        "provider": "cuda", "device": Device("cuda"), "max_encode_tokens": 512,
    }  # fmt: skip
    assert "shortlists are for CPUs" in caplog.text
