"""Stages 4 and 8 of 10: decide which sentences run in the next step, and what becomes of those that leave.

Pure policy: no tensors, no I/O, no clock of its own. A sentence is waiting, then running in one of two lanes, then gone
with exactly one `Departure`. A step is that of one lane. Aborts and deadlines are applied by `schedule`, so before the
next step, in both lanes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from service.config import SchedulerConfig
from service.errors import CancelledRequestError, DeadlineError, DragomanError, EngineStepError
from service.request import Hypothesis, Outcome, Sequence, SequenceResult
from service.scheduler.budget import BatchBudget, CacheBytes
from service.scheduler.lanes import Lane, Turns
from service.scheduler.queue import WaitingQueue

__all__ = ["Departure", "Scheduler", "StepPlan"]

_DEADLINES_KEPT = 1024
_IDLE_ENCODES = 4
"""Runs of the encoder in one step while nobody is decoding: nobody is held up, but an abort must not wait long."""
_CROWD, _COMPANY, _PATIENCE = 16, 4, 3
"""Beside a crowd of so many a sentence waits until so many can join together, but no more steps than this."""
_GROUP = 8
"""Sentences that join together where not all that wait find room."""


@dataclass(slots=True)
class _Tracked:
    """A sentence with the times of its stages."""

    sequence: Sequence
    arrived: float
    admitted: float | None = None
    lane: Lane = Lane.SHORT
    """Where it runs."""
    encode_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A sentence that left, why, and when it was where."""

    sequence: Sequence
    result: SequenceResult
    arrived: float
    admitted: float | None
    """None when it never ran."""
    encode_seconds: float
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What to do before and in the next step."""

    lane: Lane = Lane.SHORT
    """Whose sentences run in the next step."""
    departures: list[Departure] = field(default_factory=list)
    """Sentences that were aborted or expired."""
    kept: dict[Lane, list[int]] = field(default_factory=dict)
    """Which of the sentences that ran in a lane's last step go on, ascending; only of lanes that somebody left."""
    admitted: list[Sequence] = field(default_factory=list)
    """Sentences that join the lane, in the order in which they follow those that go on."""
    num_running: int = 0
    """Sentences of the next step, those that join included."""


class Scheduler:
    """Continuous batching: sentences join and leave at every step."""

    def __init__(self, config: SchedulerConfig, cache_bytes: CacheBytes) -> None:
        self._config = config
        self._waiting = WaitingQueue()
        self._running: dict[Lane, list[int]] = {lane: [] for lane in Lane}
        self._turns = Turns()
        self._num_held = dict.fromkeys(Lane, 0)
        """Steps of each lane for which somebody was held up to wait for company."""
        self._lane = Lane.SHORT
        self._began = 0.0
        self._tracked: dict[int, _Tracked] = {}
        self._aborted: dict[int, None] = {}
        self._deadlines: list[tuple[float, int]] = []
        self.budget = BatchBudget(config, cache_bytes)

    @property
    def num_waiting(self) -> int:
        """Sentences that have not run yet."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sentences that are being decoded, in both lanes."""
        return sum(map(len, self._running.values()))

    @property
    def is_crowded(self) -> bool:
        """Whether many sentences of short requests are being decoded."""
        return len(self._running[Lane.SHORT]) >= _CROWD

    @property
    def num_deadlines(self) -> int:
        """Deadlines that are remembered, some of them of sentences that are gone."""
        return len(self._deadlines)

    def add(self, sequence: Sequence, now: float) -> None:
        """Take a sentence in. It must fit alone (`BatchBudget.fits_alone`)."""
        self._tracked[sequence.sequence_id] = _Tracked(sequence, arrived=now)
        self._waiting.add(sequence)
        if sequence.deadline is not None:
            heapq.heappush(self._deadlines, (sequence.deadline, sequence.sequence_id))
            self._prune_deadlines()

    def abort(self, sequence_id: int) -> None:
        """Let a sentence leave before the next step. One that is already gone is no fault."""
        if sequence_id in self._tracked:
            self._aborted[sequence_id] = None

    def seconds_until_step(self, now: float) -> float | None:
        """How long to wait for company before the next step: 0 for none, None when there is nothing to do."""
        if not self._tracked:
            return None
        if self.num_running or self._aborted:
            return 0.0
        delay = self._config.max_queue_delay_seconds
        if not delay or self._fills_a_batch():
            return 0.0
        oldest = min(self._tracked[sequence.sequence_id].arrived for sequence in self._waiting)
        return max(0.0, oldest + delay - now)

    def schedule(self, now: float) -> StepPlan:
        """Plan the next step: who leaves before it, whose it is, who joins it."""
        departures, kept = self._drop_aborted_and_expired(now)
        self._lane, self._began = self._choose_lane(), now
        admitted = self._admit(now)
        return StepPlan(
            lane=self._lane,
            departures=departures,
            kept=kept,
            admitted=admitted,
            num_running=len(self._running[self._lane]),
        )

    def note_encoded(self, sequences: list[Sequence], seconds: float) -> None:
        """Remember how long the encoder took for sentences that joined."""
        for sequence in sequences:
            self._tracked[sequence.sequence_id].encode_seconds = seconds

    def finish(self, answers: dict[int, tuple[Hypothesis, ...]], now: float) -> list[Departure]:
        """End a step; let sentences leave with their answers.

        Args:
            answers: Hypotheses, best first, by the sentence's place among those that ran.
            now: When they left.
        """
        self._turns.charge(self._lane, now - self._began)
        if not answers:
            return []
        running = self._running[self._lane]
        departures = [
            self._answer(running[place], hypotheses, now) for place, hypotheses in answers.items()
        ]
        self._forget_departed()
        return departures

    def fail(self, error: DragomanError, now: float, *, last: int | None = None) -> list[Departure]:
        """Let sentences of the step leave with an error: all, or the `last` that joined."""
        running = self._running[self._lane]
        failed = running if last is None else running[len(running) - last :]
        departures = [self._depart(i, Outcome.FAILED, now, error=error) for i in failed]
        self._forget_departed()
        return departures

    def close(self, error: DragomanError, outcome: Outcome, now: float) -> list[Departure]:
        """Let every sentence leave."""
        departures = [self._depart(i, outcome, now, error=error) for i in list(self._tracked)]
        self._forget_departed()
        return departures

    def _fills_a_batch(self) -> bool:
        rows = sum(sequence.options.beam_size for sequence in self._waiting)
        return rows >= self._config.max_batch_rows

    def _prune_deadlines(self) -> None:
        """Forget the deadlines of sentences that are gone, so that far deadlines do not pile up."""
        if len(self._deadlines) > 2 * len(self._tracked) + _DEADLINES_KEPT:
            self._deadlines = [item for item in self._deadlines if item[1] in self._tracked]
            heapq.heapify(self._deadlines)

    def _drop_aborted_and_expired(
        self, now: float
    ) -> tuple[list[Departure], dict[Lane, list[int]]]:
        if not self._aborted and not (self._deadlines and self._deadlines[0][0] <= now):
            return [], {}
        departures = [
            self._depart(i, Outcome.CANCELLED, now, error=CancelledRequestError("Cancelled."))
            for i in self._aborted
            if i in self._tracked
        ]
        self._aborted.clear()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, sequence_id = heapq.heappop(self._deadlines)
            if sequence_id in self._tracked:
                error = DeadlineError("The deadline passed before the translation was ready.")
                departures.append(self._depart(sequence_id, Outcome.EXPIRED, now, error=error))
        if not departures:
            return departures, {}
        kept = {
            lane: [place for place, i in enumerate(running) if i in self._tracked]
            for lane, running in self._running.items()
        }
        kept = {
            lane: places for lane, places in kept.items() if len(places) < len(self._running[lane])
        }
        self._forget_departed()
        return departures, kept

    def _choose_lane(self) -> Lane:
        """Whose step is next: that of a document whose turn has come, else that of either lane that can go on."""
        short_can = bool(self._running[Lane.SHORT])
        documents_can = bool(self._running[Lane.DOCUMENTS])
        head = self._waiting.peek()
        if head is None:
            return self._take_turns(short_can, documents_can)
        head_fits = self.budget.fits(head)
        short_is_next = self._waiting.is_short(head.request_id)
        if head_fits and not short_is_next and self._waiting.is_preferred(head.request_id):
            return Lane.DOCUMENTS
        short_can = short_can or (head_fits and short_is_next)
        documents_can = documents_can or self._next_document() is not None
        return self._take_turns(short_can, documents_can)

    def _take_turns(self, short_can: bool, documents_can: bool) -> Lane:
        """Whose step is next of those that can go on."""
        if short_can and documents_can:
            return self._turns.choose()
        self._turns.forget()
        return Lane.DOCUMENTS if documents_can else Lane.SHORT

    def _admit(self, now: float) -> list[Sequence]:
        """Take waiting sentences of the lane in their turn while they fit. The first one that does not fit ends it.

        So nobody who needs much room is passed for ever by those who need little. While short requests are there,
        documents do not fill the batch to the brim, so that short requests find room at once.
        """
        admitted: list[Sequence] = []
        if not self._waiting:
            return admitted
        like_length: int | None = None
        running = self._running[self._lane]
        encode_tokens = self._config.max_encode_tokens * (1 if self.num_running else _IDLE_ENCODES)
        next_of_lane = self._next_short if self._lane is Lane.SHORT else self._next_document
        while True:
            sequence = next_of_lane(like_length)
            if sequence is None or (not admitted and running and self._must_gather(sequence)):
                return admitted
            length = len(sequence.source_ids)
            if admitted and length > encode_tokens:
                return admitted
            encode_tokens -= length
            like_length = like_length or length
            self._start(sequence, now)
            admitted.append(sequence)

    def _start(self, sequence: Sequence, now: float) -> None:
        """Let a waiting sentence join the lane."""
        self._waiting.take(sequence.sequence_id)
        self.budget.reserve(sequence)
        self._running[self._lane].append(sequence.sequence_id)
        tracked = self._tracked[sequence.sequence_id]
        tracked.admitted, tracked.lane = now, self._lane

    def _next_short(self, like_length: int | None = None) -> Sequence | None:
        """The sentence whose turn it is, if its request is short and it fits."""
        sequence = self._waiting.peek(like_length, self._config.length_window)
        if sequence is None or not self._waiting.is_short(sequence.request_id):
            return None
        return sequence if self.budget.fits(sequence) else None

    def _next_document(self, like_length: int | None = None) -> Sequence | None:
        """The document's sentence that may join: it fits, and so does a short request that stands before it."""
        sequence = self._waiting.peek_document(like_length, self._config.length_window)
        if sequence is None or not self.budget.fits(sequence) or self._must_share(sequence):
            return None
        head = self._waiting.peek()
        return sequence if head is None or self.budget.fits(head) else None

    def _must_gather(self, sequence: Sequence) -> bool:
        """Whether a sentence must wait for company: one by one the encoder costs twice as much.

        In a full batch it waits until a group finds room, or all who wait; beside many others, for a few steps.
        """
        beam_size = sequence.options.beam_size
        if self._lane is Lane.SHORT:
            limit, count = self._config.max_batch_rows, self._waiting.count_next(_GROUP)
        elif self._waiting.is_preferred(sequence.request_id):
            return False
        else:
            is_shared = self._waiting.has_short_requests
            limit = self._config.max_shared_rows if is_shared else self._config.max_batch_rows
            count = self._waiting.count_documents(_GROUP)
        group = min(count * beam_size, limit // 4)
        if self.budget.rows + group > limit:
            return True
        is_crowded = len(self._running[self._lane]) >= _CROWD
        if is_crowded and count < _COMPANY and self._num_held[self._lane] < _PATIENCE:
            self._num_held[self._lane] += 1
            return True
        self._num_held[self._lane] = 0
        return False

    def _must_share(self, sequence: Sequence) -> bool:
        """Whether a further sentence of a document must wait for the sake of short requests."""
        rows = self.budget.rows + sequence.options.beam_size
        return (
            rows > self._config.max_shared_rows
            and self._waiting.has_short_requests
            and not self._waiting.is_preferred(sequence.request_id)
        )

    def _answer(
        self, sequence_id: int, hypotheses: tuple[Hypothesis, ...], now: float
    ) -> Departure:
        """Let a sentence leave with its answer. None at all means that every log-probability was NaN or -inf."""
        if hypotheses:
            return self._depart(sequence_id, Outcome.FINISHED, now, hypotheses=hypotheses)
        error = EngineStepError("The model gave no probable token.")
        return self._depart(sequence_id, Outcome.FAILED, now, error=error)

    def _depart(
        self,
        sequence_id: int,
        outcome: Outcome,
        now: float,
        *,
        hypotheses: tuple[Hypothesis, ...] = (),
        error: DragomanError | None = None,
    ) -> Departure:
        tracked = self._tracked.pop(sequence_id)
        if tracked.admitted is None:
            self._waiting.remove(sequence_id)
        else:
            self.budget.release(tracked.sequence)
            self._waiting.end(tracked.sequence.request_id)
        return Departure(
            sequence=tracked.sequence,
            result=SequenceResult(
                sequence_id=sequence_id, outcome=outcome, hypotheses=hypotheses, error=error
            ),
            arrived=tracked.arrived,
            admitted=tracked.admitted,
            encode_seconds=tracked.encode_seconds,
            left=now,
        )

    def _forget_departed(self) -> None:
        self._running = {
            lane: [i for i in running if i in self._tracked]
            for lane, running in self._running.items()
        }
