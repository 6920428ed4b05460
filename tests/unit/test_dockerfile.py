"""What can be seen of the image without building it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()


def _instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_the_base_is_an_argument_whose_default_is_a_digest() -> None:
    (base,) = (each for each in _instructions("ARG") if each.startswith("BASE_IMAGE="))

    assert re.fullmatch(r"BASE_IMAGE=\S+:\S+@sha256:[0-9a-f]{64}", base)
    assert [each for each in _instructions("FROM") if ":" in each] == []


def test_the_cpu_image_is_what_is_built_without_a_target() -> None:
    stages = [each.rpartition(" ")[2] for each in _instructions("FROM")]

    assert stages[-1] == "cpu"
    assert "gpu" in stages


def test_every_package_has_the_version_that_was_tested() -> None:
    installs = [
        command.strip()
        for line in _instructions("RUN")
        for command in line.split("&&")
        if re.search(r"\bpip\b.* install ", command)
    ]

    assert installs
    for install in installs:
        assert "--constraint constraints.txt" in install or "--no-deps" in install


def test_the_server_is_process_1_and_not_root() -> None:
    (user,) = _instructions("USER")

    assert user == "10001:10001"
    assert _instructions("ENTRYPOINT") == ['["dragoman"]']


def test_only_what_the_package_is_made_of_is_sent_to_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert ignored[0] == "*"
    assert not {"!tests", "!.git", "!deploy", "!benchmarks"} & set(ignored)
