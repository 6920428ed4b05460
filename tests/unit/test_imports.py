"""Who may import whom, seen from a fresh interpreter: what a server process really loads."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("commands", "export", "model", "service")
TRAINING_ONLY = {"matplotlib", "onnx", "onnxscript", "sacrebleu", "torch", "transformers"}


def loaded_by(statement: str) -> set[str]:
    """Run a statement in a new interpreter; give the top-level names of all modules that it loaded."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize("module", ["service.app", "service.__main__", "commands.local"])
def test_serving_loads_nothing_of_training(module: str) -> None:
    loaded = loaded_by(f"import {module}")

    assert not loaded & TRAINING_ONLY
    assert "onnxruntime" in loaded  # otherwise this test looks at the wrong thing


@pytest.mark.parametrize(
    "module", ["model.tokenizer", "model.distill", "export.bundle", "export.signature"]
)
def test_what_the_server_shares_with_training_is_light(module: str) -> None:
    assert not loaded_by(f"import {module}") & (TRAINING_ONLY | {"grpc", "onnxruntime"})


@pytest.mark.parametrize(
    "statement",
    [
        "import service.app",
        "import service.engine.onnx_engine",
        "import dragoman; dragoman.main(['info', 'nowhere']); import onnxruntime",
    ],
)
def test_the_runtime_reports_nothing_to_its_maker(statement: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if "TELEMETRY" not in key}

    subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nassert 'onnxruntime' in sys.modules"],
        cwd=ROOT,
        env={**environment, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")},
        capture_output=True,
        check=True,
    )

    assert list(tmp_path.rglob("deviceid")) == []


def test_translating_through_a_server_loads_no_engine() -> None:
    loaded = loaded_by("import commands.translate, commands.client")

    assert not loaded & (TRAINING_ONLY | {"onnxruntime", "numpy", "sentencepiece"})


def test_the_command_line_itself_loads_almost_nothing() -> None:
    assert not loaded_by("import dragoman") & (TRAINING_ONLY | {"grpc", "numpy", "rich"})


def constants_then_classes_then_functions(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def module_files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", module_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_are_listed_sorted_and_exist(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assignments = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if "__all__" not in assignments:
        return
    names = ast.literal_eval(assignments["__all__"])

    assert names == sorted(names, key=constants_then_classes_then_functions)
    assert len(names) == len(set(names))
    assert not {name for name in names if name.startswith("_")}
