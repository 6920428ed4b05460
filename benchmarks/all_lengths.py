"""Workload (c): sentences of all lengths as they come, at beam 1 until the model ends, at beam 4 with forced lengths.

At beam 1 both engines stop at the same token, so what counts is how an engine fills its batch when sentences end at
different times. At beam 4 each group of similar sources gets as many tokens as its middle source has.
"""

from __future__ import annotations

from benchmarks.comparison import Work, compare, in_one_call
from benchmarks.engine import Ids, Search, TranslationEngine
from benchmarks.part import Absolute, Result
from benchmarks.stand import BATCH_SIZE, Stand, repeated

__all__ = ["measure"]


def measure(stand: Stand) -> Result:
    """The embedded model in int8."""
    model = stand.model("tiny")
    count = BATCH_SIZE * stand.num_cores * (2 if stand.quick else 4)
    sources = repeated(stand.sources(model), count)
    group_size = BATCH_SIZE * stand.num_cores
    result = Result()
    for beam_size, work in (
        (1, in_one_call(sources, Search(beam_size=1))),
        (4, _groups(sources, group_size)),
    ):
        found = compare(
            [model.dragoman("int8", stand.num_cores)],
            model.ctranslate2("int8", stand.num_cores),
            work,
            stand.rounds,
        )
        key = f"tiny.int8.beam{beam_size}.all-lengths.throughput"
        result.merge(
            Result(
                ratios={key: found.speed_up},
                absolutes=[
                    Absolute(
                        what=f"{key}: {label}", value=len(sources) / seconds, unit="sentences/s"
                    )
                    for label, seconds in (
                        (found.our_label, found.ours),
                        (found.their_label, found.theirs),
                    )
                ],
                samples={key: found.samples},
            )
        )
    return result


def _groups(sources: list[Ids], size: int) -> Work:
    by_length = sorted(sources, key=len)
    groups = [by_length[start : start + size] for start in range(0, len(by_length), size)]

    def work(engine: TranslationEngine) -> None:
        for group in groups:
            num_tokens = len(group[len(group) // 2])
            engine.translate(group, Search(beam_size=4, num_tokens=num_tokens))

    return work
