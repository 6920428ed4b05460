"""`make release` refuses before it builds, and the changelog begins with the version that it would give."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the makefiles and nothing else, all committed, and what an earlier release left."""
    (tmp_path / "deploy").mkdir()
    for name in ("Makefile", "pyproject.toml", ".gitignore", *_makefiles()):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "SHA256SUMS").write_text("of the last release", encoding="utf-8")
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", "--all")
    _git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def _makefiles() -> list[str]:
    return [f"deploy/{path.name}" for path in (ROOT / "deploy").glob("*.mk")]


def _git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *words], cwd=directory, check=True)


def _make(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        ["make", *words], cwd=directory, env=environ, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["DOCKER=/nowhere/docker", "HELM=true"], "/nowhere/docker"),
        (["DOCKER=true", "HELM=/nowhere/helm"], "/nowhere/helm"),
    ],
)
def test_a_release_needs_its_programs_before_it_begins(
    checkout: Path, words: list[str], named: str
) -> None:
    done = _make(checkout, "release", *words)

    assert done.returncode != 0
    assert f"release: {named} is not installed" in done.stderr
    assert (checkout / "dist" / "SHA256SUMS").exists()


@pytest.mark.parametrize("name", ["Makefile", "new.py"])
def test_a_release_of_what_is_not_committed_is_refused(checkout: Path, name: str) -> None:
    with (checkout / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    done = _make(checkout, "release", "DOCKER=true", "HELM=true")

    assert done.returncode != 0
    assert "not committed" in done.stderr
    assert (checkout / "dist" / "SHA256SUMS").exists()


def test_an_image_says_that_it_was_built_from_what_is_not_committed(checkout: Path) -> None:
    clean = _make(checkout, "--dry-run", "image").stdout
    (checkout / "new.py").touch()
    dirty = _make(checkout, "--dry-run", "image").stdout

    assert re.search(r"--build-arg REVISION=[0-9a-f]{40} ", clean)
    assert re.search(r"--build-arg REVISION=[0-9a-f]{40}-dirty ", dirty)
    assert f"--build-arg VERSION={VERSION} " in clean


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)

    assert headings[0].split()[0].strip("[],") == VERSION
    assert "Unreleased" not in text
