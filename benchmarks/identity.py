"""Are the answers of both engines the same? At beam 1 in float32 they must be; int8 rounds differently."""

from __future__ import annotations

from benchmarks.engine import Search
from benchmarks.part import Result
from benchmarks.stand import Stand
from export.bundle import Precision

__all__ = ["measure"]

_PRECISIONS: tuple[Precision, ...] = ("float32", "int8")


def measure(stand: Stand) -> Result:
    """The share of all sources whose greedy translations by the embedded model are the same, ids for ids."""
    model = stand.model("tiny")
    sources = stand.sources(model)[:200]
    search = Search(beam_size=1)
    result = Result()
    for precision in _PRECISIONS:
        ours = model.dragoman(precision, stand.num_cores).translate(sources, search)
        theirs = model.ctranslate2(precision, stand.num_cores)[0].translate(sources, search)
        same = sum(one == other for one, other in zip(ours, theirs, strict=True))
        name = precision.replace("float", "fp")
        result.ratios[f"tiny.{name}.beam1.identical"] = same / len(sources)
    result.notes.append(
        f"identical: share of {len(sources)} sentences with the same ids in both engines"
    )
    return result
