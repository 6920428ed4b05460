from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.image import imread

from model.curves import draw_curves, read_events


def _step(step: int, loss: float = 3.0) -> dict[str, Any]:
    values = {"loss": loss, "nll": loss - 0.5, "learning_rate": step * 1e-4, "gradient_norm": 1.5}
    return {"event": "step", "step": step, "tokens_per_second": 900.0, **values}


def _write(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_picture_grows_by_a_panel_where_scores_were_measured(tmp_path: Path) -> None:
    plain = {"event": "validation", "step": 2, "nll": 2.0}
    scored = {**plain, "scores": {"BLEU": 12.0, "chrF": 40.0}}
    heights = []
    for name, validation in (("plain", plain), ("scored", scored)):
        log = _write(tmp_path / f"{name}.jsonl", {"event": "start"}, _step(1), _step(2), validation)
        draw_curves(log, tmp_path / f"{name}.png")
        picture = imread(tmp_path / f"{name}.png")
        assert picture[..., :3].std() > 0.05  # something was drawn
        heights.append(picture.shape[0])
    assert heights[1] > heights[0]
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".png"}


def test_run_that_has_only_begun_can_be_drawn(tmp_path: Path) -> None:
    draw_curves(_write(tmp_path / "log.jsonl", {"event": "start"}), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_what_was_done_twice_counts_once(tmp_path: Path) -> None:
    log = _write(
        tmp_path / "log.jsonl",
        *(_step(step) for step in (1, 2, 3)),
        {"event": "resume", "step": 2},
        _step(3, loss=1.0),
    )
    found = [(event["step"], event["loss"]) for event in read_events(log) if "loss" in event]
    assert found == [(1, 3.0), (2, 3.0), (3, 1.0)]


def test_line_that_is_not_complete_is_left_out(tmp_path: Path) -> None:
    log = _write(tmp_path / "log.jsonl", _step(1))
    with log.open("a") as stream:
        stream.write('{"event": "st')
    assert len(read_events(log)) == 1
