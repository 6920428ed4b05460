"""What a release hands out: a wheel that serves the embedded models from an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.index]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source distribution, made as `make dist` makes them, from a copy of the checkout."""
    source = tmp_path_factory.mktemp("source") / "dragoman"
    skipped = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "*.egg-info", "runs", "shared", "tests"
    )
    shutil.copytree(ROOT, source, ignore=skipped)
    target = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--outdir", str(target), str(source))
    return target


@pytest.fixture(scope="module")
def dragoman(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment with nothing but the wheel and what it asks for."""
    environment = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", str(environment))
    (wheel,) = dist.glob("*.whl")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run(*pip, "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[cpu]")
    return environment / "bin" / "dragoman"


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_source_distribution_holds_the_models_but_no_checkpoint(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        names = [name.partition("/")[2] for name in source.getnames()]

    assert {"LICENSE", "README.md", "model/pretrained/en-pt/weights.bin"} <= set(names)
    assert not [name for name in names if ".checkpoint" in name]


def test_the_wheel_serves_the_embedded_models(dragoman: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "DRAGOMAN_METRICS__LISTEN": "", "PYTHONPATH": ""}
    command = [str(dragoman), "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            address = next(
                filter(None, (re.search(r"gRPC +(\S+)", line) for line in server.stdout))
            )[1]
            text = _run(str(dragoman), "translate", "--address", address, "--source", "en",
                        "--target", "pt", "Good morning.")  # fmt: skip
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0
        finally:
            server.kill()
    assert text == "Bom dia.\n"


def test_the_environment_of_the_wheel_has_no_torch(dragoman: Path) -> None:
    code = "import importlib.util as u; print([m for m in ('torch', 'onnx') if u.find_spec(m)])"

    assert _run(str(dragoman.with_name("python")), "-c", code) == "[]\n"
