"""Our engine as it would stand behind a request-level batcher: batch after batch, each to its end.

Inside a batch it does what the server's engine does: finished sentences leave at once, and their rows cost nothing
more. But nobody joins.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.request_batcher import OnResults
from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.base import Engine
from service.request import Sequence as Sentence
from service.request import SequenceResult

__all__ = ["DragomanBatches"]


class DragomanBatches:
    """One driver for each thread; see `benchmarks.request_batcher.BatchTranslator`.

    Args:
        engine: What runs the graphs.
        config: Must have room for a batch.
        answers_early: Whether a sentence that is finished is told at once, or all at the end of the batch, as
            `translate_batch` does.
    """

    def __init__(
        self, engine: Engine, config: SchedulerConfig, *, answers_early: bool = False
    ) -> None:
        self._engine = engine
        self._config = config
        self._answers_early = answers_early
        self._own = threading.local()

    def translate(self, sentences: Sequence[Sentence], on_results: OnResults) -> None:
        driver = self._driver()
        for (
            sentence
        ) in sentences:  # as calls of their own: a batch is one, whoever asked for its parts
            driver.add(replace(sentence, request_id=str(sentence.sequence_id)))
        results: list[SequenceResult] = []
        while driver.seconds_until_step() is not None:
            results += [departure.result for departure in driver.step().departures]
            if results and self._answers_early:
                on_results(results)
                results = []
        on_results(results)

    def _driver(self) -> Driver:
        driver: Driver | None = getattr(self._own, "driver", None)
        if driver is None:
            driver = Driver(model="batches", engine=self._engine, config=self._config)
            self._own.driver = driver
        return driver
