"""Workload (b): one sentence at a time, nothing else running."""

from __future__ import annotations

from benchmarks.comparison import compare, one_at_a_time
from benchmarks.engine import Search
from benchmarks.part import Absolute, Result
from benchmarks.stand import Stand
from benchmarks.throughput import NUM_TOKENS

__all__ = ["measure"]

_NUM_SENTENCES = {"tiny": 12, "base": 4}


def measure(stand: Stand) -> Result:
    """Both models in int8, beam 4 and 1."""
    result = Result()
    for name, beam_size in (("tiny", 4), ("base", 4), ("tiny", 1), ("base", 1)):
        result.merge(_measure(stand, name, beam_size))
    return result


def _measure(stand: Stand, name: str, beam_size: int) -> Result:
    model = stand.model(name)
    sources = stand.usual_sources(model, _NUM_SENTENCES[name])
    search = Search(beam_size=beam_size, num_tokens=NUM_TOKENS)
    found = compare(
        [model.dragoman("int8", 1)],
        model.ctranslate2("int8", stand.num_cores),
        one_at_a_time(sources, search),
        stand.rounds,
    )
    key = f"{name}.int8.beam{beam_size}.latency"
    milliseconds = 1e3 / len(sources)
    return Result(
        ratios={key: found.relative_time},
        absolutes=[
            Absolute(what=f"{key}: {found.our_label}", value=found.ours * milliseconds, unit="ms"),
            Absolute(
                what=f"{key}: {found.their_label}", value=found.theirs * milliseconds, unit="ms"
            ),
        ],
        samples={key: found.samples},
    )
