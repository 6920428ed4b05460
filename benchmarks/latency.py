"""Workload (b): one sentence at a time, nothing else running."""

from __future__ import annotations

from benchmarks.comparison import compare, one_at_a_time
from benchmarks.dragoman_engine import DragomanEngine
from benchmarks.engine import Search
from benchmarks.part import Absolute, CannotRunError, Result
from benchmarks.stand import Stand
from benchmarks.throughput import NUM_TOKENS

__all__ = ["measure"]

_NUM_SENTENCES = {"tiny": 12, "base": 4}


def measure(stand: Stand) -> Result:
    """Both models in int8, beam 4 and 1; and `tiny` as it is served, with its vocabulary shortlist."""
    result = Result()
    for name, beam_size in (("tiny", 4), ("base", 4), ("tiny", 1), ("base", 1)):
        engine = stand.model(name).dragoman("int8", 1)
        result.merge(_measure(stand, name, engine, f"{name}.int8.beam{beam_size}", beam_size))
    try:
        listed = DragomanEngine("Dragoman, shortlist,", stand.model("tiny").shortlist_engine(), 1)
        result.merge(_measure(stand, "tiny", listed, "tiny.int8.beam4.shortlist", 4))
    except CannotRunError as error:
        result.notes.append(f"latency of tiny with a shortlist: {error}")
    return result


def _measure(stand: Stand, name: str, engine: DragomanEngine, what: str, beam_size: int) -> Result:
    model = stand.model(name)
    sources = stand.usual_sources(model, _NUM_SENTENCES[name])
    search = Search(beam_size=beam_size, num_tokens=NUM_TOKENS)
    found = compare(
        [engine],
        model.ctranslate2("int8", stand.num_cores),
        one_at_a_time(sources, search),
        stand.rounds,
    )
    key = f"{what}.latency"
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
