"""Our engine and CTranslate2 on the same work, in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.engine import Ids, Search, TranslationEngine
from benchmarks.timing import Samples, fastest, interleave, median

__all__ = ["Comparison", "Work", "compare"]

Work = Callable[[TranslationEngine], object]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of both sides for the same work."""

    ours: float
    theirs: float
    our_label: str
    their_label: str
    samples: Samples

    @property
    def speed_up(self) -> float:
        """How many times as much we do in the same time."""
        return self.theirs / self.ours

    @property
    def relative_time(self) -> float:
        """Our time over theirs."""
        return self.ours / self.theirs


def compare(
    ours: Sequence[TranslationEngine],
    theirs: Sequence[TranslationEngine],
    work: Work,
    rounds: int,
) -> Comparison:
    """Run the work on every variant of both sides in turn; the best variant of each side counts."""
    runs = {engine.label: partial(work, engine) for engine in (*ours, *theirs)}
    our_labels = [engine.label for engine in ours]
    samples = interleave(runs, rounds, lambda label: str(label in our_labels))
    best = fastest(samples, our_labels)
    rival = fastest(samples, [engine.label for engine in theirs])
    return Comparison(median(samples, best), median(samples, rival), best, rival, samples)


def in_one_call(sources: Sequence[Ids], search: Search) -> Work:
    """All sources at once."""
    return lambda engine: engine.translate(sources, search)


def one_at_a_time(sources: Sequence[Ids], search: Search) -> Work:
    """One source after the other, each alone."""
    return lambda engine: [engine.translate([source], search) for source in sources]
