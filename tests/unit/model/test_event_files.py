from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model.errors import TrainingError
from model.event_files import EventFiles


def test_missing_package_is_named_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if "tensorboard" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(TrainingError, match=r"pip install '\.\[tensorboard\]'"):
        EventFiles(tmp_path)


def test_numbers_of_steps_and_validations_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    files = EventFiles(tmp_path)
    files.write("start", {"torch": "2"})
    files.write("step", {"step": 50, "loss": 2.5, "tokens_per_second": 900.0})
    files.write("validation", {"step": 50, "nll": 2.0, "best": True, "scores": {"BLEU": 12.5}})
    files.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    tags = found.Tags()["scalars"]
    assert sorted(tags) == [
        "held_out/BLEU",
        "held_out/nll",
        "training/loss",
        "training/tokens_per_second",
    ]
    (scalar,) = found.Scalars("held_out/BLEU")
    assert (scalar.step, scalar.value) == (50, 12.5)


def test_resumed_run_hides_what_it_does_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    first = EventFiles(tmp_path)
    for step in (1, 2, 3):
        first.write("step", {"step": step, "loss": 9.0})
    first.close()
    again = EventFiles(tmp_path, first_step=3)
    again.write("step", {"step": 3, "loss": 1.0})
    again.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(s.step, s.value) for s in found.Scalars("training/loss")] == [
        (1, 9.0),
        (2, 9.0),
        (3, 1.0),
    ]
