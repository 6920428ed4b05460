"""Stage 4 of 10, part 2: how much may run at once.

A step costs what padding makes it cost, and memory is held for the longest, so budgets count padded things: rows x
longest source, and caches for all rows up to the longest possible target. A sentence reserves its whole beam and its
own limit when it is admitted; it can never fail for memory later. See ARCHITECTURE.md, "Budgets".
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from service.config import SchedulerConfig
from service.request import Sequence

__all__ = ["BatchBudget", "CacheBytes"]

CacheBytes = Callable[[int, int, int, int], int]
"""(rows, target length, sentences, source length) -> bytes, as `Engine.cache_bytes`."""

_MAX_KNOWN_SHAPES = 4096
"""Sentences of one beam and the same lengths come again and again: so many are reckoned once."""


@dataclass(frozen=True, slots=True)
class _Totals:
    """What a set of sentences reserves."""

    rows: int
    sentences: int
    longest_source: int
    longest_target: int

    def plus(self, sequence: Sequence) -> _Totals:
        return _Totals(
            self.rows + sequence.options.beam_size,
            self.sentences + 1,
            max(self.longest_source, len(sequence.source_ids)),
            max(self.longest_target, sequence.max_length),
        )


class BatchBudget:
    """The reservations of the running sentences, and whether one more fits."""

    def __init__(self, config: SchedulerConfig, cache_bytes: CacheBytes) -> None:
        self._config = config
        self._cache_bytes = cache_bytes
        self._rows = 0
        self._sources: Counter[int] = Counter()
        self._targets: Counter[int] = Counter()
        self._could_run = functools.lru_cache(_MAX_KNOWN_SHAPES)(self._is_within_alone)

    @property
    def rows(self) -> int:
        """Rows reserved: the beams of the running sentences."""
        return self._rows

    @property
    def padded_tokens(self) -> int:
        """Rows x the longest source."""
        totals = self._totals()
        return totals.rows * totals.longest_source

    @property
    def reserved_bytes(self) -> int:
        """Memory that the running sentences may come to need."""
        totals = self._totals()
        return self._bytes(totals) if totals.rows else 0

    def fits(self, sequence: Sequence) -> bool:
        """Whether the sentence may join those that run."""
        return self._is_within(self._totals().plus(sequence))

    def fits_alone(self, sequence: Sequence) -> bool:
        """Whether the sentence could ever run."""
        return self._could_run(
            sequence.options.beam_size, len(sequence.source_ids), sequence.max_length
        )

    def find_misfit(self, sequences: list[Sequence]) -> Sequence | None:
        """A sentence that could never run, if there is one."""
        if len(sequences) > 1:  # Thousands of sentences are one comparison.
            rows = max([sequence.options.beam_size for sequence in sequences])
            longest_source = max([len(sequence.source_ids) for sequence in sequences])
            longest_target = max([sequence.max_length for sequence in sequences])
            if self._could_run(rows, longest_source, longest_target):
                return None
        return next((s for s in sequences if not self.fits_alone(s)), None)

    def reserve(self, sequence: Sequence) -> None:
        """Count a sentence in."""
        self._rows += sequence.options.beam_size
        self._sources[len(sequence.source_ids)] += 1
        self._targets[sequence.max_length] += 1

    def release(self, sequence: Sequence) -> None:
        """Count a sentence out."""
        self._rows -= sequence.options.beam_size
        for counts, length in (
            (self._sources, len(sequence.source_ids)),
            (self._targets, sequence.max_length),
        ):
            counts[length] -= 1
            if counts[length] == 0:
                del counts[length]

    def _totals(self) -> _Totals:
        return _Totals(
            self._rows,
            self._sources.total(),
            max(self._sources, default=0),
            max(self._targets, default=0),
        )

    def _is_within_alone(self, rows: int, source_length: int, target_length: int) -> bool:
        return self._is_within(_Totals(rows, 1, source_length, target_length))

    def _is_within(self, totals: _Totals) -> bool:
        return (
            totals.rows <= self._config.max_batch_rows
            and totals.rows * totals.longest_source <= self._config.max_batch_tokens
            and self._bytes(totals) <= self._config.max_cache_bytes
        )

    def _bytes(self, totals: _Totals) -> int:
        return self._cache_bytes(
            totals.rows, totals.longest_target, totals.sentences, totals.longest_source
        )
