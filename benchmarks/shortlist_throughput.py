"""Workload (a) with the vocabulary shortlist, beside CTranslate2 and ourselves with the full vocabulary.

The shortlist of `tiny` is that of its bundle, so the sources are read as they are; that of `base`, whose weights are
random, is made up in a size that real text has.
"""

from __future__ import annotations

from functools import partial

from benchmarks.comparison import in_one_call
from benchmarks.dragoman_engine import DragomanEngine
from benchmarks.engine import Search, TranslationEngine
from benchmarks.part import Absolute, CannotRunError, Result
from benchmarks.stand import BATCH_SIZE, Stand
from benchmarks.throughput import NUM_TOKENS
from benchmarks.timing import interleave, median

__all__ = ["measure", "measure_one"]

_BEAM_SIZE = 4
_RIVAL = "CTranslate2"


def measure(stand: Stand) -> Result:
    """Both models, as far as they have a shortlist."""
    result = Result()
    for name in ("tiny", "base"):
        try:
            result.merge(measure_one(stand, name))
        except CannotRunError as error:
            result.notes.append(f"{name} with a shortlist: {error}")
    return result


def measure_one(stand: Stand, name: str) -> Result:
    """One model in int8."""
    model = stand.model(name)
    listed = DragomanEngine("Dragoman, shortlist,", model.shortlist_engine(), stand.num_cores)
    full = model.dragoman("int8", stand.num_cores)
    sources = stand.usual_sources(model, BATCH_SIZE * stand.num_cores)
    search = Search(beam_size=_BEAM_SIZE, num_tokens=NUM_TOKENS)
    work = in_one_call(sources, search)
    engines: list[TranslationEngine] = [listed, full, *model.ctranslate2("int8", stand.num_cores)]
    samples = interleave(
        {engine.label: partial(work, engine) for engine in engines}, stand.rounds, _family
    )
    seconds = {label: median(samples, label) for label in samples}
    theirs = min(seconds[label] for label in seconds if _family(label) == _RIVAL)
    key = f"{name}.int8.beam{_BEAM_SIZE}.shortlist.throughput"
    return Result(
        ratios={
            key: theirs / seconds[listed.label],
            f"{key}.of_full": seconds[full.label] / seconds[listed.label],
        },
        absolutes=[
            Absolute(
                what=f"{key}: {label}", value=len(sources) * NUM_TOKENS / value, unit="tokens/s"
            )
            for label, value in seconds.items()
        ],
        samples={key: samples},
    )


def _family(label: str) -> str:
    """Only CTranslate2 comes in several variants, of which the best counts."""
    return _RIVAL if label.startswith(_RIVAL) else label
