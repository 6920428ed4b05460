"""How much of a step is not the decoder graph?

Sentences are decoded together until all have ended, a few times. Of each step the fastest time over the runs counts, so
that a busy machine disturbs little; steps in which somebody joins are left out. What is not the graph is the plan, the
search, the moving of rows and the binding of arrays.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import rich.console
import rich.table
from numpy.typing import NDArray

from benchmarks.corpus import load_texts
from benchmarks.engine import Ids
from benchmarks.part import Absolute, Result
from benchmarks.stand import BATCH_SIZE, Stand
from export.bundle import load_bundle
from model.tokenizer import Tokenizer
from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.onnx_engine import OnnxEngine, load_onnx_engine
from service.request import DecodingOptions, Sequence

MAX_SHARE = 0.15
_BEAM_SIZE = 4
EMBEDDED = Path(__file__).resolve().parent.parent / "model" / "pretrained" / "en-pt"


class TimedSession:
    """A session that adds up the seconds of its runs."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any) -> None:
        """Run, and look at the clock."""
        began = time.perf_counter()
        self._session.run_with_iobinding(binding)
        self.seconds += time.perf_counter() - began


def measure(stand: Stand) -> Result:
    """The share for the embedded model, 32 sentences at beam 4 on one thread."""
    engine = load_onnx_engine(load_bundle(EMBEDDED), use_shortlist=False)
    sources = stand.usual_sources(stand.model("tiny"), BATCH_SIZE)
    steps = measure_steps(engine, sources, _BEAM_SIZE, 4 if stand.quick else 12)
    outside, graph = steps.mean(axis=0)
    whole = outside + graph
    return Result(
        ratios={"step.python": outside / whole},
        absolutes=[Absolute(what="step.python: a whole step", value=whole * 1e3, unit="ms")],
        samples={"step.python": {"outside": steps[:, 0].tolist(), "graph": steps[:, 1].tolist()}},
    )


def main() -> int:
    """Measure and print; 1 when the largest batch spends more than 15 % outside the graph."""
    arguments = _parse_arguments()
    bundle = load_bundle(arguments.bundle)
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    texts = load_texts(arguments.file)
    engine = load_onnx_engine(bundle, use_shortlist=False)
    table = rich.table.Table("sentences x beam", "ms a step", "outside the graph", "share")
    share = 0.0
    for num_sentences in arguments.sentences:
        chosen = [texts[place % len(texts)] for place in range(num_sentences)]
        sources = [tuple(source) for source in tokenizer.encode_source_batch(chosen)]
        steps = measure_steps(engine, sources, arguments.beam_size, arguments.runs)
        outside, graph = steps.mean(axis=0) * 1e3
        share = outside / (outside + graph)
        shape = f"{num_sentences} x {arguments.beam_size}"
        table.add_row(shape, f"{outside + graph:.2f}", f"{outside:.2f}", f"{share:.1%}")
    rich.console.Console().print(str(arguments.bundle), table)
    return 0 if share <= MAX_SHARE else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_python", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=EMBEDDED, help="default: the embedded one")
    parser.add_argument(
        "--file", type=Path, help="one source sentence a line; default: a few built-in ones"
    )
    parser.add_argument(
        "--sentences", type=int, nargs="+", default=[1, 8, 32], help="default: %(default)s"
    )
    parser.add_argument("--beam-size", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=8, help="default: %(default)s")
    return parser.parse_args()


def measure_steps(
    engine: OnnxEngine, sources: list[Ids], beam_size: int, runs: int
) -> NDArray[np.float64]:
    """Seconds outside and inside the graph of each step, (steps, 2): the least of all runs."""
    plain = engine.decoder_session
    session = TimedSession(plain)
    engine.decoder_session = session
    try:
        steps = [_decode(engine, session, sources, beam_size) for _ in range(runs)]
    finally:
        engine.decoder_session = plain
    least: NDArray[np.float64] = np.minimum.reduce(steps)
    return least


def _decode(
    engine: OnnxEngine, session: TimedSession, sources: list[Ids], beam_size: int
) -> NDArray[np.float64]:
    config = SchedulerConfig(max_batch_rows=len(sources) * beam_size)
    driver = Driver(model="benchmark", engine=engine, config=config)
    for number, source in enumerate(sources):
        driver.add(
            Sequence(
                sequence_id=number,
                request_id=str(number),
                source_ids=source,
                options=DecodingOptions(beam_size=beam_size),
                max_length=2 * len(source) + 10,
            )
        )
    steps = []
    while driver.seconds_until_step() is not None:
        before = session.seconds
        began = time.perf_counter()
        report = driver.step()
        seconds, graph = time.perf_counter() - began, session.seconds - before
        if not report.admitted:
            steps.append((seconds - graph, graph))
    return np.array(steps)


if __name__ == "__main__":
    sys.exit(main())
