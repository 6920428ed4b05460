"""Our engine without a server, never short of sentences: the most that calls over gRPC could get.

Each worker runs its driver as in the server, and has as many sentences on hand as it has with so many clients; for one
that leaves, the next is there before the following step. No queue between threads, no text, no network, and nobody
who watches.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.base import Engine
from service.request import Sequence as Sentence

__all__ = ["EngineRun", "run_engine_alone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What was done."""

    throughput: float
    """Sentences a second, in the stretch of time that counts."""
    num_sentences: int
    """All, those before and after it included."""


def run_engine_alone(  # noqa: PLR0913 - what a run is, each named
    engine: Engine,
    sentences: Sequence[Sentence],
    *,
    num_workers: int,
    num_outstanding: int,
    warm_seconds: float,
    seconds: float,
) -> EngineRun:
    """Translate again and again; at the end, finish what runs.

    Args:
        engine: What runs the graphs.
        sentences: Taken in turn, from the beginning again at the end.
        num_workers: Threads.
        num_outstanding: Sentences that wait or run at any time, all workers together.
        warm_seconds: Sentences that leave earlier do not count.
        seconds: How long sentences count after that.
    """
    numbers = itertools.count()
    begins = time.monotonic() + warm_seconds
    ends = begins + seconds
    counts = [0] * num_workers

    def next_sentence() -> Sentence:
        number = next(numbers)
        sentence = sentences[number % len(sentences)]
        return replace(sentence, sequence_id=number, request_id=str(number))

    def work(worker: int) -> None:
        driver = Driver(model="alone", engine=engine, config=SchedulerConfig())
        for _ in range(worker, num_outstanding, num_workers):
            driver.add(next_sentence())
        while driver.seconds_until_step() is not None:
            departures = driver.step().departures
            now = time.monotonic()
            if begins <= now < ends:
                counts[worker] += len(departures)
            if now < ends:
                for _ in departures:
                    driver.add(next_sentence())

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(num_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return EngineRun(throughput=sum(counts) / seconds, num_sentences=next(numbers))
