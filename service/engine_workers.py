"""The workers of one model, as its core sees them: inboxes by number. They are threads of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from service.config import SchedulerConfig
from service.driver import Driver
from service.engine.base import Engine
from service.scheduler.budget import CacheBytes
from service.stats import Observer
from service.worker import Message, Worker, WorkerListener

__all__ = ["EngineThreads", "EngineWorkers"]


class EngineWorkers(Protocol):
    """Workers that translate with one model, numbered from 0."""

    @property
    def num_workers(self) -> int:
        """How many there are."""

    @property
    def cache_bytes(self) -> CacheBytes:
        """As `Engine.cache_bytes`."""

    def start(self, observer: Observer, listener: WorkerListener) -> None:
        """Begin to work, once. Both are told from other threads than this one."""

    def send(self, worker: int, message: Message) -> None:
        """Put a message into a worker's inbox. Thread-safe; one that is gone takes it and does nothing."""

    def join(self) -> None:
        """Wait until all workers have ended; each was sent `Stop`, or died."""


class EngineThreads:
    """A thread for each worker; all share one engine.

    Args:
        model: Name of the model.
        engine: What runs its graphs.
        config: Limits of each worker's batch.
        num_workers: Threads.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        model: str,
        engine: Engine,
        config: SchedulerConfig,
        num_workers: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._drivers = [
            Driver(model=model, engine=engine, config=config, clock=clock)
            for _ in range(num_workers)
        ]
        self._workers: list[Worker] = []

    @property
    def num_workers(self) -> int:
        return len(self._drivers)

    @property
    def cache_bytes(self) -> CacheBytes:
        return self._engine.cache_bytes

    def start(self, observer: Observer, listener: WorkerListener) -> None:
        self._workers = [
            Worker(index=index, driver=driver, observer=observer, listener=listener)
            for index, driver in enumerate(self._drivers)
        ]
        for worker in self._workers:
            worker.start()

    def send(self, worker: int, message: Message) -> None:
        if self._workers:  # before the start nobody is there to end
            self._workers[worker].inbox.put(message)

    def join(self) -> None:
        for worker in self._workers:
            worker.join()
