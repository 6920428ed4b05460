from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from model.training_log import TrainingLog

STEP = {"step": 50, "loss": 3.25, "tokens_per_second": 1234.5}


def _run(path: Path, *, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120)
    with TrainingLog(path, max_steps=100, console=console) as log:
        log.show_step(50)
        log.write("step", **STEP)
        log.write("validation", step=50, nll=2.5)
    return screen.getvalue()


def test_every_event_is_one_json_line_with_its_time(tmp_path: Path) -> None:
    _run(tmp_path / "log.jsonl", terminal=False)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["step", "validation"]
    assert {key: events[0][key] for key in STEP} == STEP
    assert events[0]["time"] <= events[1]["time"]


def test_log_of_a_resumed_run_grows(tmp_path: Path) -> None:
    for _ in range(2):
        _run(tmp_path / "log.jsonl", terminal=False)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 4


def test_terminal_sees_a_bar_with_speed_loss_and_time_left(tmp_path: Path) -> None:
    screen = _run(tmp_path / "log.jsonl", terminal=True)
    for text in ("50/100", "loss 3.250", "1,234 tokens/s", "left", "validation: step 50"):
        assert text in screen


def test_bar_of_a_resumed_run_begins_where_the_run_does(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with TrainingLog(tmp_path / "log.jsonl", max_steps=100, console=console) as log:
        log.start_at(40)
    assert "40/100" in screen.getvalue()


def test_without_a_terminal_every_step_is_a_line(tmp_path: Path) -> None:
    screen = _run(tmp_path / "log.jsonl", terminal=False)
    assert screen.splitlines() == [
        "step: step 50  loss 3.25  tokens_per_second 1234",
        "validation: step 50  nll 2.5",
    ]


def test_line_that_a_killed_run_left_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "start"}\n{"event": "st')
    _run(path, terminal=False)
    lines = path.read_text().splitlines()
    assert lines[1] == '{"event": "st'
    assert [json.loads(line)["event"] for line in lines[2:]] == ["step", "validation"]


def test_numbers_go_to_tensorboard_when_it_is_wanted(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    console = Console(file=io.StringIO())
    with TrainingLog(
        tmp_path / "log.jsonl", max_steps=9, console=console, event_directory=tmp_path / "events"
    ) as log:
        log.start_at(0)
        log.write("step", **STEP)
    (file,) = (tmp_path / "events").iterdir()
    assert b"training/loss" in file.read_bytes()
