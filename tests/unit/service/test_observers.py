"""Everything that one observer is told, all are told."""

from __future__ import annotations

from typing import Any, cast

from service.calls import RpcEnded, RpcMethod, RpcStarted
from service.observers import FullObserver, Observers
from service.request import Outcome
from service.stats import Gauges, SequenceStats, StepStats, TextStage, TextStats

METHOD = RpcMethod("unary", "service", "Method")
TOLD: dict[str, tuple[Any, ...]] = {
    "on_step": (StepStats(**dict.fromkeys(StepStats.__dataclass_fields__, 0)),),  # type: ignore[arg-type]
    "on_sequence": (
        SequenceStats(
            **{**dict.fromkeys(SequenceStats.__dataclass_fields__, 0), "outcome": Outcome.FINISHED}  # type: ignore[arg-type]
        ),
    ),
    "on_text": (
        TextStats(
            **{**dict.fromkeys(TextStats.__dataclass_fields__, 0), "stage": TextStage.PREPARE}  # type: ignore[arg-type]
        ),
    ),
    "on_gauges": (Gauges(**dict.fromkeys(Gauges.__dataclass_fields__, 0)),),  # type: ignore[arg-type]
    "on_rejected": ("invalid",),
    "on_guard": ("en-pt", "truncated"),
    "on_rpc_started": (RpcStarted(method=METHOD),),
    "on_rpc_ended": (RpcEnded(method=METHOD, code="OK", seconds=1.0),),
}


class _Recorder:
    """Remembers every call of every method."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.told.append((name, values))


def test_all_are_told_everything_in_their_order() -> None:
    first, second = _Recorder(), _Recorder()
    observers = Observers([cast(FullObserver, first), cast(FullObserver, second)])
    for name, values in TOLD.items():
        getattr(observers, name)(*values)
    assert first.told == second.told == list(TOLD.items())


def test_no_method_of_an_observer_is_forgotten() -> None:
    assert {name for name in dir(FullObserver) if name.startswith("on_")} == set(TOLD)
