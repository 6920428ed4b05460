"""Several observers in the place of one: metrics, and tracing when it is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service.calls import RpcEnded, RpcObserver, RpcStarted
from service.stats import Gauges, Observer, SequenceStats, StepStats, TextStats

__all__ = ["FullObserver", "Observers"]


class FullObserver(Observer, RpcObserver, Protocol):
    """Receives what happens in the core and to calls."""


class Observers:
    """Tells each of several observers, in their order."""

    def __init__(self, observers: Sequence[FullObserver]) -> None:
        """Take who is told."""
        self._observers = tuple(observers)

    def on_step(self, stats: StepStats) -> None:
        for observer in self._observers:
            observer.on_step(stats)

    def on_sequence(self, stats: SequenceStats) -> None:
        for observer in self._observers:
            observer.on_sequence(stats)

    def on_text(self, stats: TextStats) -> None:
        for observer in self._observers:
            observer.on_text(stats)

    def on_gauges(self, gauges: Gauges) -> None:
        for observer in self._observers:
            observer.on_gauges(gauges)

    def on_rejected(self, reason: str) -> None:
        for observer in self._observers:
            observer.on_rejected(reason)

    def on_guard(self, model: str, guard: str) -> None:
        for observer in self._observers:
            observer.on_guard(model, guard)

    def on_rpc_started(self, started: RpcStarted) -> None:
        for observer in self._observers:
            observer.on_rpc_started(started)

    def on_rpc_ended(self, ended: RpcEnded) -> None:
        for observer in self._observers:
            observer.on_rpc_ended(ended)
