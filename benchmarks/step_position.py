"""Does a decoder step compute the past again?

Sentences of equal length are decoded for many steps, never ending; the table compares how long a step takes at a late
position with an early one. With a cache the difference is what attention reads, far from proportional to the position.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import rich.console
import rich.table

from export.bundle import load_bundle
from service.engine.base import Engine
from service.engine.onnx_engine import load_onnx_engine
from service.rows import NO_EDITS, Candidates, RowMoves

WINDOW = 5
MAX_RATIO = 2.0
SOURCE_TOKENS = 30
EMBEDDED = Path(__file__).resolve().parent.parent / "model" / "pretrained" / "en-pt"


def main() -> int:
    """Measure and print; 1 when the late step takes more than twice the time."""
    arguments = _parse_arguments()
    engine = load_onnx_engine(load_bundle(arguments.bundle), use_shortlist=False)
    table = rich.table.Table(
        "sentences x beam", f"ms at {arguments.early}", f"ms at {arguments.late}", "ratio"
    )
    ratios = []
    for num_sentences in arguments.sentences:
        runs = [
            _decode(engine, num_sentences, arguments.beam_size, arguments.late + WINDOW)
            for _ in range(arguments.runs)
        ]
        early, late = (_around(runs, place) for place in (arguments.early, arguments.late))
        ratios.append(late / early)
        shape = f"{num_sentences} x {arguments.beam_size}"
        table.add_row(shape, f"{early * 1e3:.2f}", f"{late * 1e3:.2f}", f"{ratios[-1]:.2f}")
    rich.console.Console().print(str(arguments.bundle), table)
    return 0 if max(ratios) <= MAX_RATIO else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_position", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=EMBEDDED, help="default: the embedded one")
    parser.add_argument(
        "--sentences", type=int, nargs="+", default=[1, 8, 32], help="default: %(default)s"
    )
    parser.add_argument("--beam-size", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--early", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--late", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="default: %(default)s")
    return parser.parse_args()


def _decode(engine: Engine, num_sentences: int, beam_size: int, num_steps: int) -> list[float]:
    """Give the seconds of each step: decoder graph and moving of rows."""
    chance = np.random.default_rng(1)
    sources = chance.integers(3, engine.facts.vocab_size, (num_sentences, SOURCE_TOKENS))
    decoder = engine.create_decoder()
    decoder.admit(engine.encode([tuple(map(int, source)) for source in sources]))
    rows_a_sentence = 1
    seconds = []
    for _ in range(num_steps):
        start = time.perf_counter()
        candidates = decoder.decode(2 * beam_size, NO_EDITS)
        parents = np.arange(num_sentences * rows_a_sentence)
        if rows_a_sentence < beam_size:
            parents, rows_a_sentence = np.repeat(parents, beam_size), beam_size
        decoder.gather(
            RowMoves(
                parent_rows=parents,
                token_ids=_best_open(candidates, engine.facts.eos_id)[parents],
                kept_sentences=np.arange(num_sentences),
                row_counts=np.full(num_sentences, beam_size),
            )
        )
        seconds.append(time.perf_counter() - start)
    return seconds


def _best_open(candidates: Candidates, eos_id: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The best token of each row that does not end the sentence."""
    first, second = candidates.token_ids[:, 0], candidates.token_ids[:, 1]
    return np.where(first == eos_id, second, first)


def _around(runs: list[list[float]], position: int) -> float:
    """The median of the steps around a position."""
    return statistics.median(
        seconds for run in runs for seconds in run[position - WINDOW : position + WINDOW]
    )


if __name__ == "__main__":
    sys.exit(main())
