"""The graphs run on the oldest ONNX Runtime that the project says it takes: that of the GPU's build is behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.index]

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
import onnxruntime
from export.bundle import load_bundle
from service.engine.device_engine import load_device_engine
from service.engine.device_memory import Device
from service.engine.onnx_engine import load_onnx_engine
from tests.companies import random_sequences, run

assert onnxruntime.__version__.startswith(sys.argv[1]), onnxruntime.__version__
bundle = load_bundle(Path("model/pretrained/en-pt"))
sequences = random_sequences(1000, 8)
plain = load_onnx_engine(bundle, use_shortlist=False)
for engine in (plain, load_onnx_engine(bundle)):
    together = run(engine, sequences)
    assert together == {s.sequence_id: run(engine, [s])[s.sequence_id] for s in sequences}
device = load_device_engine(bundle, provider="cpu", device=Device("cpu"))
# Not those of beam 1: on a device they have two lanes, which may give other bits.
several = [s for s in sequences if s.options.beam_size > 1]
assert len(several) < len(sequences)
assert run(plain, several) == run(device, several)
"""


def oldest(extra: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (requirement,) = project["optional-dependencies"][extra]
    found = re.fullmatch(r"onnxruntime[^>]*>=([0-9.]+),<2", requirement)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_graphs_run_on_the_oldest_runtime_that_is_taken(tmp_path: Path, extra: str) -> None:
    """The oldest of both extras, as built for CPUs."""
    version = oldest(extra)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run(
        [*install, "--target", str(tmp_path), f"onnxruntime=={version}.0"],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, version],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
