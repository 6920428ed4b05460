"""Our engine in this process: what a server runs behind its door, without queue, text and network.

Each worker is a thread with a driver of its own, as `service.worker` has it; sentences are dealt out by length so that
all workers have the same work.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from benchmarks.engine import Ids, Search
from service import request
from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.base import Engine
from service.request import DecodingOptions

__all__ = ["DragomanEngine", "forced_options"]

_SENTENCES_A_BATCH = 32
_LIMITS = SchedulerConfig()
_MAX_TARGET_TOKENS = 512


def forced_options(options: DecodingOptions, search: Search) -> DecodingOptions:
    """Forbid the end of the sentence at every step where the length is forced."""
    if search.num_tokens is None:
        return options
    return replace(options, min_target_tokens=search.num_tokens + 1)


class DragomanEngine:
    """Workers over one engine; see `benchmarks.engine.TranslationEngine`."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        num_workers: int,
        *,
        num_sentences: int = _SENTENCES_A_BATCH,
        limits: SchedulerConfig = _LIMITS,
    ) -> None:
        """Take an engine, and how many sentences a worker decodes at once within which other limits."""
        self.label = f"{name} {num_workers} x 1"
        self._engine = engine
        self._num_sentences = num_sentences
        self._limits = limits
        self._num_workers = num_workers
        self._pool = ThreadPoolExecutor(num_workers)
        self._numbers = itertools.count()
        self._own = threading.local()

    def translate(self, sources: Sequence[Ids], search: Search) -> list[Ids]:
        order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
        shares = [order[worker :: self._num_workers] for worker in range(self._num_workers)]
        found: list[Ids] = [()] * len(sources)

        def work(share: list[int]) -> None:
            for place, target in self._decode([sources[place] for place in share], search):
                found[share[place]] = target

        # One sentence alone needs no thread.
        busy = [share for share in shares if share]
        list(map(work, busy) if len(busy) == 1 else self._pool.map(work, busy))
        return found

    def _driver(self, beam_size: int) -> Driver:
        """As a server's worker keeps its driver, with the memory of its caches, from request to request."""
        drivers: dict[int, Driver] = self._own.__dict__.setdefault("drivers", {})
        if beam_size not in drivers:
            config = replace(self._limits, max_batch_rows=self._num_sentences * beam_size)
            drivers[beam_size] = Driver(model="benchmark", engine=self._engine, config=config)
        return drivers[beam_size]

    def _decode(self, sources: Sequence[Ids], search: Search) -> Iterator[tuple[int, Ids]]:
        """Run this thread's driver until it is empty; gives places with their answers."""
        driver = self._driver(search.beam_size)
        options = forced_options(DecodingOptions(beam_size=search.beam_size), search)
        for place, source in enumerate(sources):
            limit = min(2 * len(source) + 10, _MAX_TARGET_TOKENS)
            driver.add(
                request.Sequence(
                    sequence_id=place,
                    request_id=str(next(self._numbers)),
                    source_ids=source,
                    options=options,
                    max_length=search.num_tokens or limit,
                )
            )
        while driver.seconds_until_step() is not None:
            for departure in driver.step().departures:
                if departure.result.error is not None:
                    raise departure.result.error
                best = departure.result.hypotheses[0]
                yield departure.sequence.sequence_id, best.token_ids
