"""Workload (d): 200 target tokens, where the caches are long."""

from __future__ import annotations

from benchmarks.comparison import compare, in_one_call
from benchmarks.engine import Search
from benchmarks.part import Absolute, Result
from benchmarks.stand import Stand

__all__ = ["measure"]

_NUM_TOKENS = 200
_SENTENCES_A_CORE = 8


def measure(stand: Stand) -> Result:
    """Both models in int8 at beam 4, 8 sentences a worker; `base` only when there is time."""
    result = Result()
    for name in ("tiny",) if stand.quick else ("tiny", "base"):
        model = stand.model(name)
        sources = stand.usual_sources(model, _SENTENCES_A_CORE * stand.num_cores)
        found = compare(
            [model.dragoman("int8", stand.num_cores)],
            model.ctranslate2("int8", stand.num_cores),
            in_one_call(sources, Search(beam_size=4, num_tokens=_NUM_TOKENS)),
            min(stand.rounds, 5),
        )
        key = f"{name}.int8.beam4.long.throughput"
        num_tokens = len(sources) * _NUM_TOKENS
        sides = ((found.our_label, found.ours), (found.their_label, found.theirs))
        result.merge(
            Result(
                ratios={key: found.speed_up},
                absolutes=[
                    Absolute(what=f"{key}: {label}", value=num_tokens / seconds, unit="tokens/s")
                    for label, seconds in sides
                ],
                samples={key: found.samples},
            )
        )
    return result
