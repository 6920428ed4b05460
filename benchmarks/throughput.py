"""Workload (a): tokens a second when every worker has a batch of 32 sentences of usual length."""

from __future__ import annotations

from benchmarks.comparison import compare, in_one_call
from benchmarks.engine import Search
from benchmarks.part import Absolute, Result
from benchmarks.stand import BATCH_SIZE, Stand
from export.bundle import Precision

__all__ = ["NUM_TOKENS", "measure", "measure_one"]

NUM_TOKENS = 25
"""Target tokens of each sentence, forced in every engine."""

_CASES: tuple[tuple[str, Precision, int], ...] = (
    ("tiny", "int8", 4),
    ("base", "int8", 4),
    ("tiny", "int8", 1),
    ("base", "int8", 1),
    ("tiny", "float32", 4),
    ("tiny", "float32", 1),
)
_SLOW_CASES: tuple[tuple[str, Precision, int], ...] = (
    ("base", "float32", 4),
    ("base", "float32", 1),
)


def measure(stand: Stand) -> Result:
    """All cases; `base` in float32 only when there is time."""
    result = Result()
    for case in _CASES if stand.quick else _CASES + _SLOW_CASES:
        result.merge(measure_one(stand, *case))
    return result


def measure_one(stand: Stand, name: str, precision: Precision, beam_size: int) -> Result:
    """One model in one precision with one beam size."""
    model = stand.model(name)
    sources = stand.usual_sources(model, BATCH_SIZE * stand.num_cores)
    search = Search(beam_size=beam_size, num_tokens=NUM_TOKENS)
    found = compare(
        [model.dragoman(precision, stand.num_cores)],
        model.ctranslate2(precision, stand.num_cores),
        in_one_call(sources, search),
        stand.rounds,
    )
    key = f"{name}.{precision.replace('float', 'fp')}.beam{beam_size}.throughput"
    num_tokens = len(sources) * NUM_TOKENS
    return Result(
        ratios={key: found.speed_up},
        absolutes=[
            Absolute(
                what=f"{key}: {found.our_label}", value=num_tokens / found.ours, unit="tokens/s"
            ),
            Absolute(
                what=f"{key}: {found.their_label}", value=num_tokens / found.theirs, unit="tokens/s"
            ),
        ],
        samples={key: found.samples},
    )
