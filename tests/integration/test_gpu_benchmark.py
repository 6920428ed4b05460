"""The comparison on a GPU, as far as a machine without one runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.dragoman_engine import DragomanEngine
from benchmarks.engine import Ids, Search
from benchmarks.gpu_operators import misplaced
from benchmarks.torch_engine import TorchEngine
from export.bundle import Bundle, Precision
from export.exporter import suppressed_ids
from model.checkpoint import load_model
from service.engine.onnx_engine import load_onnx_engine
from tests.tiny_models import SENTENCES, make_tokenizer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


def run_script(tools: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only these tools, and those of the system, are found."""
    path = f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return subprocess.run(
        ["bash", str(SCRIPT), "--tokens", "3"],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def make_tool(directory: Path, name: str, script: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_without_a_gpu_the_script_says_so_in_a_line(tmp_path: Path) -> None:
    make_tool(tmp_path, "nvidia-smi", "exit 9")
    done = run_script(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "There is no CUDA GPU here (nvidia-smi finds none): nothing was measured."
    ]


def test_with_a_gpu_the_script_hands_its_arguments_on(tmp_path: Path) -> None:
    make_tool(tmp_path, "nvidia-smi", 'echo "GPU 0: a card"')
    python = make_tool(tmp_path, "environment-python", '[ "$1" = -c ] && exit 1; echo "$@"')
    done = run_script(tmp_path, GPU_PYTHON=str(python))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "-m benchmarks.gpu --tokens 3\n"


def test_an_environment_with_both_runtimes_is_refused(tmp_path: Path) -> None:
    make_tool(tmp_path, "nvidia-smi", 'echo "GPU 0: a card"')
    python = make_tool(tmp_path, "environment-python", "exit 0")
    done = run_script(tmp_path, GPU_PYTHON=str(python))
    assert done.returncode == 1
    assert "onnxruntime beside onnxruntime-gpu" in done.stderr


def test_the_script_is_sound_shell() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n", str(SCRIPT)], check=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([]) == 2
    assert "no CUDA GPU" in capsys.readouterr().out


def test_heavy_operators_that_run_elsewhere_are_told() -> None:
    here, cpu = "CUDAExecutionProvider", "CPUExecutionProvider"
    good = {here: {"MatMul": 4, "GroupQueryAttention": 2}, cpu: {"Shape": 3}}
    assert misplaced(good, "cuda") == []
    assert misplaced({**good, cpu: {"MatMul": 1}}, "cuda") == [f"MatMul does not run on {here}"]
    assert misplaced({cpu: {"MatMul": 4}}, "cuda")[-1] == f"nothing runs on {here}"


@pytest.mark.parametrize("beam_size", [1, 4])
def test_torch_and_the_served_engine_say_the_same(
    random_bundle: Callable[[Precision], Bundle], beam_size: int
) -> None:
    bundle = random_bundle("float32")
    sources: list[Ids] = [tuple(s) for s in make_tokenizer().encode_source_batch(list(SENTENCES))]
    search = Search(beam_size=beam_size, num_tokens=9)
    theirs = TorchEngine(
        load_model(bundle.directory.parent / "checkpoint"),
        suppressed_ids(bundle.manifest.special_tokens),
        device="cpu",
        dtype=torch.float32,
        num_sentences=3,
    )
    ours = DragomanEngine("Dragoman", load_onnx_engine(bundle), 1)
    assert theirs.translate(sources, search) == ours.translate(sources, search)
    with pytest.raises(ValueError, match="length"):
        theirs.translate(sources, Search(beam_size=beam_size))


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_measures_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--provider cpu --batch-sizes 2 6 --tokens 6 --rounds 1 --json".split()  # noqa: SIM905
    assert gpu.main([*words, str(tmp_path / "gpu.json"), "--scratch", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert set(report["ratios"]) == {
        f"gpu.beam{beam}.batch{batch}" for beam in (1, 4) for batch in (2, 6)
    }
    assert all(each["torch"] > 0 and each["dragoman"] > 0 for each in report["throughput"])
    assert [each["share"] for each in report["equality"]] == [1.0, 1.0]
    assert report["operators"]["CPUExecutionProvider"]["GroupQueryAttention"] == 2 * 2
    assert report["faults"] == []
    assert "tokens/s" in capsys.readouterr().out
