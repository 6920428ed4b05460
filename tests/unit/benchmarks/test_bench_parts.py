"""What `dragoman bench` does around its measurements."""

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import start_time
from benchmarks.part import CannotRunError, Result
from benchmarks.parts import PARTS, Part
from benchmarks.picture import save_picture
from benchmarks.products import decoder_products, encoder_products, num_operations
from benchmarks.run import Report, run_parts
from benchmarks.stand import Stand
from benchmarks.table import print_report
from benchmarks.targets import TARGETS
from benchmarks.timing import interleave, median
from model.config import TransformerConfig


def make_report(**ratios: float) -> Report:
    named = {key.replace("_", "."): value for key, value in ratios.items()}
    machine = {"processor": "none", "cores": 2}
    return Report(result=Result(ratios=named), machine=machine, versions={}, quick=True)


def test_every_target_is_filled_by_exactly_one_part() -> None:
    filled = [key for part in PARTS for key in part.keys]

    assert sorted(filled) == sorted(TARGETS)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [("tiny.int8.beam4.throughput", 1.15, 1.14), ("load.p99", 0.6, 0.61)],
)
def test_a_target_is_a_floor_or_a_ceiling(key: str, good: float, bad: float) -> None:
    assert TARGETS[key].is_met(good)
    assert not TARGETS[key].is_met(bad)


def test_candidates_run_in_turn_and_hopeless_variants_are_dropped() -> None:

    runs: list[str] = []

    def candidate(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            runs.append(name)
            time.sleep(seconds)

        return run

    candidates = {
        "us": candidate("us", 0.001),
        "a": candidate("a", 0.001),
        "b": candidate("b", 0.01),
    }
    samples = interleave(candidates, 2, lambda name: "ours" if name == "us" else "theirs")

    assert sorted(samples) == ["a", "us"]
    assert runs[6:] == ["a", "us", "us", "a"]
    assert median(samples, "a") >= 0.001


def test_operations_are_those_of_all_matrices() -> None:
    config = TransformerConfig.from_preset("base", source_vocab_size=100, target_vocab_size=100)

    step = sum(num_operations(shape) * n for shape, n in decoder_products(config, 1).items())
    encoded = sum(num_operations(shape) * n for shape, n in encoder_products(config, 1).items())

    attention, inner = 4 * 512 * 512, 2 * 512 * 2048
    assert step == 2 * (6 * (attention + 2 * 512 * 512 + inner) + 512 * 100)
    assert encoded == 2 * 6 * (attention + inner + 2 * 512 * 512)


def test_a_part_that_cannot_run_says_so_in_the_place_of_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(stand: Stand) -> Result:
        raise CannotRunError("no processor")

    monkeypatch.setattr(start_time, "measure", refuse)
    parts = [Part("start", "start_time", ("start.seconds",)), Part("later", "no_such_module")]
    told: list[str] = []

    report = run_parts(Stand(tmp_path, num_cores=1), parts, told.append)

    assert told == ["start", "later"]
    assert report.missing == {"start.seconds": "no processor", "later": "not built yet"}
    assert report.to_json()["ratios"] == {}


def test_the_table_shows_what_was_missed() -> None:
    report = make_report(load_p99=0.7, step_python=0.1)
    console = Console(record=True, width=100, file=io.StringIO())

    print_report(report, console)

    lines = console.export_text().splitlines()
    assert "MISSED" in next(line for line in lines if "load.p99" in line)
    assert "MISSED" not in next(line for line in lines if "step.python" in line)
    assert report.to_json()["missed"] == ["load.p99"]


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    save_picture(make_report(load_p99=0.7), tmp_path / "a.png")

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
