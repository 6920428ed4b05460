"""The scheduler under random arrivals, aborts, deadlines and finishes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from service.config import SchedulerConfig
from service.request import FinishReason, Hypothesis, Outcome, Sequence
from service.scheduler.lanes import Lane
from service.scheduler.scheduler import Departure, Scheduler
from tests.builders import make_sequence

ANSWER = (Hypothesis(token_ids=(1,), log_prob=-1.0, score=-0.5, finish_reason=FinishReason.STOP),)
LIMITS = SchedulerConfig(
    max_batch_rows=16,
    max_batch_tokens=200,
    max_cache_bytes=2000,
    max_encode_tokens=40,
    length_window=3,
)


def cache_bytes(rows: int, target_length: int, sentences: int, source_length: int) -> int:
    return 2 * rows * target_length + 3 * sentences * source_length


arrivals = st.builds(
    lambda request, length, beam, limit, patience: (request, length, beam, limit, patience),
    st.sampled_from("aaab"),  # long enough to become documents, too
    st.integers(1, 12),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 30),
    st.none() | st.integers(1, 8),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("add"), arrivals),
        st.tuples(st.just("abort"), st.integers(0, 50)),
        st.tuples(st.just("step"), st.sets(st.integers(0, 15))),
    ),
    max_size=80,
)


@dataclass
class Storm:
    """Runs events, and checks what must hold after each."""

    scheduler: Scheduler = field(default_factory=lambda: Scheduler(LIMITS, cache_bytes))
    now: float = 0.0
    added: list[Sequence] = field(default_factory=list)
    lanes: dict[Lane, list[Sequence]] = field(default_factory=lambda: {lane: [] for lane in Lane})
    admitted: list[Sequence] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)

    def add(self, item: tuple[str, int, int, int, int | None]) -> None:
        request, length, beam, limit, patience = item
        sequence = make_sequence(
            (1,) * length,
            request_id=request,
            beam_size=beam,
            max_length=limit,
            deadline=None if patience is None else self.now + patience,
        )
        assert self.scheduler.budget.fits_alone(sequence)
        self.added.append(sequence)
        self.scheduler.add(sequence, self.now)

    def abort(self, index: int) -> None:
        if self.added:
            self.scheduler.abort(self.added[index % len(self.added)].sequence_id)

    def step(self, finishing: set[int]) -> None:
        self.now += 1.0
        plan = self.scheduler.schedule(self.now)
        for lane, kept in plan.kept.items():
            self.lanes[lane] = [self.lanes[lane][place] for place in kept]
        running = self.lanes[plan.lane]
        running += plan.admitted
        self.admitted += plan.admitted
        self.leave(plan.departures)
        assert plan.num_running == len(running)
        self.check()
        places = sorted(place for place in finishing if place < len(running))
        self.leave(self.scheduler.finish(dict.fromkeys(places, ANSWER), self.now))
        self.lanes[plan.lane] = [s for place, s in enumerate(running) if place not in places]

    def leave(self, departures: list[Departure]) -> None:
        self.departures += departures
        for departure in departures:
            deadline = departure.sequence.deadline
            if departure.result.outcome is Outcome.EXPIRED:
                assert deadline is not None
                assert deadline <= self.now

    def check(self) -> None:
        """Never over budget, by a count of our own."""
        running = [sequence for lane in self.lanes.values() for sequence in lane]
        assert self.scheduler.num_running == len(running)
        rows = sum(sequence.options.beam_size for sequence in running)
        longest = max((len(sequence.source_ids) for sequence in running), default=0)
        furthest = max((sequence.max_length for sequence in running), default=0)
        assert rows == self.scheduler.budget.rows <= LIMITS.max_batch_rows
        assert rows * longest <= LIMITS.max_batch_tokens
        held = cache_bytes(rows, furthest, len(running), longest)
        assert held == self.scheduler.budget.reserved_bytes <= LIMITS.max_cache_bytes
        for sequence in running:
            assert sequence.deadline is None or sequence.deadline > self.now


@given(events)
@settings(max_examples=200)
def test_no_sentence_is_lost_or_answered_twice_and_budgets_return_to_zero(
    storm_events: list[tuple[str, object]],
) -> None:
    storm = Storm()
    for name, argument in storm_events:
        getattr(storm, name)(argument)
    for _ in range(2 * len(storm.added) + 1):
        storm.step(set(range(LIMITS.max_batch_rows)))
    left = Counter(departure.result.sequence_id for departure in storm.departures)
    assert left == Counter(sequence.sequence_id for sequence in storm.added)
    budget = storm.scheduler.budget
    assert (budget.rows, budget.padded_tokens, budget.reserved_bytes) == (0, 0, 0)
    assert (storm.scheduler.num_running, storm.scheduler.num_waiting) == (0, 0)
    assert storm.scheduler.seconds_until_step(storm.now) is None


@given(events)
@settings(max_examples=100)
def test_first_come_is_first_served_within_a_class(storm_events: list[tuple[str, object]]) -> None:
    """Sentences of one request and one length run in the order in which they came."""
    storm = Storm()
    for name, argument in storm_events:
        getattr(storm, name)(argument)
    for _ in range(2 * len(storm.added) + 1):
        storm.step(set(range(LIMITS.max_batch_rows)))
    classes: dict[tuple[str, int], list[int]] = {}
    for sequence in storm.admitted:
        key = (sequence.request_id, len(sequence.source_ids))
        classes.setdefault(key, []).append(sequence.sequence_id)
    assert all(ids == sorted(ids) for ids in classes.values())


@given(st.integers(1, 6), st.integers(1, 40))
def test_nobody_starves_beside_documents(num_documents: int, size: int) -> None:
    """A lone sentence joins after at most one sentence of each document, once there is room."""
    scheduler = Scheduler(SchedulerConfig(max_batch_rows=1), cache_bytes)
    for document in range(num_documents):
        for _ in range(size):
            scheduler.add(make_sequence(request_id=str(document), beam_size=1), 0.0)
    scheduler.add(call := make_sequence(request_id="call", beam_size=1), 0.0)
    served = []
    while call not in served:
        served += scheduler.schedule(0.0).admitted
        scheduler.finish({0: ANSWER}, 0.0)
    assert len(served) <= num_documents + 1
