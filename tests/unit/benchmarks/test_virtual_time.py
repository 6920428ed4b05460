"""In virtual time, where no busy machine disturbs: short calls do not wait for documents."""

from __future__ import annotations

import pytest

from benchmarks.arrivals import Arrival
from benchmarks.call_times import percentile
from benchmarks.virtual_time import (
    Batcher,
    Clock,
    Continuous,
    StepCosts,
    compare,
    measure_capacity,
    run_arrivals,
)
from service.config import SchedulerConfig
from tests.builders import make_sequence

COSTS = StepCosts(step=1.0, row=0.0, encoding=0.0, encoded_token=0.0)
SENTENCES = {
    str(length): make_sequence((1,) * length, max_length=3 * length)
    for length in (3, 5, 8, 12, 15, 18, 22, 25, 30, 40)
}


def _run(kind: type[Continuous | Batcher], *arrivals: tuple[float, tuple[str, ...]]) -> list[float]:
    clock = Clock()
    server = kind(clock, SchedulerConfig(), COSTS)
    calls = run_arrivals(server, clock, [Arrival(*each) for each in arrivals], SENTENCES)
    return [call.seconds for call in sorted(calls, key=lambda call: call.scheduled)]


def test_a_lone_sentence_takes_a_step_for_each_token() -> None:
    assert _run(Continuous, (0.0, ("8",))) == [8.0]
    assert _run(Batcher, (0.0, ("8",))) == [pytest.approx(8.005)]


def test_a_call_joins_at_the_next_step_or_waits_for_the_end_of_a_batch() -> None:
    document, call = ("40",) * 32, ("5",)
    other = ("40",) * 32  # both workers are busy
    waits = (0.0, document), (0.5, other), (1.5, call)
    assert 5.0 < _run(Continuous, *waits)[2] < 10.0  # beside it the document has its share of time
    assert _run(Batcher, *waits)[2] > 40.0


def test_all_calls_end_at_any_rate() -> None:
    found = compare(SENTENCES, 1.1, num_slices=1, seconds=5.0)
    assert len(found["continuous"]) == len(found["batcher"]) > 100


def test_the_99th_percentile_of_short_calls_is_at_most_six_tenths_of_a_batchers() -> None:
    found = compare(SENTENCES, 0.7, num_slices=4)
    ours, theirs = (
        percentile([call.seconds for call in found[name] if call.num_texts == 1], 0.99)
        for name in ("continuous", "batcher")
    )
    assert ours <= 0.6 * theirs


def test_documents_beside_short_calls_cost_little_throughput() -> None:
    capacities = []
    for config in (SchedulerConfig(), SchedulerConfig(max_shared_rows=128)):
        clock = Clock()
        server = Continuous(clock, config, StepCosts())
        capacities.append(measure_capacity(server, clock, SENTENCES, 30.0))
    assert capacities[0] >= 0.95 * capacities[1]
