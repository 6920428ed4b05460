"""The real command on a real bundle, killed for real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from export.bundle import Bundle

ROOT = Path(__file__).resolve().parents[2]
NUM_LINES = 1200


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("".join(f"cat {number}\n" for number in range(NUM_LINES)), encoding="utf-8")
    return path


def _start(text: Path, output: Path, bundle: Bundle) -> subprocess.Popen[str]:
    words = ["distill", str(text), str(output), "--bundle", str(bundle.directory)]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "dragoman.py"), *words, "--beam-size", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> str:
    shown, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return shown


@pytest.mark.slow
def test_killed_distillation_ends_as_one_that_was_not(
    random_bundle: Callable[[str], Bundle], text: Path, tmp_path: Path
) -> None:
    bundle = random_bundle("int8")
    shown = _finish(_start(text, tmp_path / "straight", bundle))
    assert shown.split()[:2] == ["lines", f"{NUM_LINES:,}"]

    answers = tmp_path / "killed" / "translations.jsonl"
    for share in (0.2, 0.5):
        process = _start(text, answers.parent, bundle)
        goal = share * (tmp_path / "straight" / answers.name).stat().st_size
        deadline = time.monotonic() + 120
        while not answers.exists() or answers.stat().st_size < goal:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.communicate()
        done = answers.read_bytes().count(b"\n")
        assert 0 < done < NUM_LINES
    assert (
        _finish(_start(text, answers.parent, bundle)).splitlines()[:-1] == shown.splitlines()[:-1]
    )
    for name in ("translations.jsonl", "pairs.tsv", "report.json", "job.json"):
        assert (answers.parent / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
