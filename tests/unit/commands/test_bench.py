"""What cannot end well is refused before minutes of measuring."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import bench
from commands.errors import EXIT_USAGE, CommandError


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def measure(*_: object) -> int:
        raise AssertionError("it went on")

    monkeypatch.setattr(bench, "_measure", measure)
    yield


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "speed"), "there is no part 'speed'; there are identity, throughput"),
        (("--json", "nowhere/found.json"), "nowhere/found.json cannot be written: there is no"),
        (("--json", "."), "cannot be written: it is a directory"),
        (("--png", "picture.txt"), "picture.txt must end in .png"),
        (("--png", "nowhere/picture.png"), "there is no directory nowhere"),
        (("--texts", "missing.txt"), "cannot read missing.txt"),
        (("--texts", "blank.txt"), "blank.txt holds no text"),
        (("--texts", "latin1.txt"), "latin1.txt is not valid UTF-8"),
        (("--work", "blank.txt"), "blank.txt is no directory"),
    ],
)
def test_wrong_options_are_told_at_once(
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("blank.txt").write_text("\n \n")
    Path("latin1.txt").write_bytes(b"caf\xe9\n")
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    with pytest.raises(CommandError) as raised:
        bench.run(parser.parse_args(options))
    assert message in str(raised.value)
    assert raised.value.exit_code == EXIT_USAGE
