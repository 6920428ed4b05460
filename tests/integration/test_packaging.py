"""What is in the wheel: everything that serving needs, and nothing that it does not."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> set[str]:
    source = tmp_path_factory.mktemp("source") / "dragoman"
    skipped = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "*.egg-info", "runs", "shared", "tests"
    )
    shutil.copytree(ROOT, source, ignore=skipped)
    checkpoint = source / "model" / "pretrained" / "xx-yy.checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    bundle = source / "model" / "pretrained" / "xx-yy"
    bundle.mkdir()
    (bundle / "manifest.json").write_text("{}")
    target = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(target), str(source)], check=True, capture_output=True)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_bundles_and_no_checkpoints(names) -> None:
    assert "model/pretrained/xx-yy/manifest.json" in names
    assert "model/pretrained/en-pt/calibration.safetensors" in names
    weights = "model.safetensors"
    assert not {name for name in names if ".checkpoint" in name or name.endswith(weights)}


def test_the_wheel_holds_every_module_that_is_served(names) -> None:
    modules = {
        str(path.relative_to(ROOT))
        for package in ("commands", "export", "model", "protos", "service")
        for path in (ROOT / package).rglob("*.py")
    }

    assert modules - names == set()
    assert {"dragoman.py", "protos/dragoman/v1/translation.proto"} <= names


def test_the_wheel_holds_neither_tests_nor_benchmarks(names) -> None:
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))}
