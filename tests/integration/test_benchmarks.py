"""The measurements run, and say so when something is missed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def run(module: str, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_short_soak_leaves_nothing_behind() -> None:
    result = run("soak", "--seconds", "20", "--clients", "16")

    assert "dragoman_kv_cache_bytes" in result.stdout
    assert "fresh request" in result.stdout
    missed = [line for line in result.stdout.splitlines() if "MISSED" in line]
    assert all("memory" in line for line in missed), result.stdout  # it still grows that early


def test_no_answer_depends_on_who_else_is_there() -> None:
    result = run("independence", "--clients", "8")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "in one call" in result.stdout
