"""What is known, at the door, of how busy the workers are: to pick one, and to refuse what cannot be in time.

Work is counted in row-steps: one decoder row in one step. What a waiting sentence will cost is its beam times its
source length times the target tokens a source token has lately come to; how long that takes follows from the
row-steps a second of recent steps. Before anything is known nobody is refused, nor where nobody waits. The estimate
leaves out what is running already, so it errs on the side of letting in.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.request import Sequence

__all__ = ["WorkerLoad", "choose_worker", "work_of"]

_HARDLY_MORE = 1.15
"""A worker with so many times the work of the least busy is as good as that one."""
_HALF_LIFE_SECONDS = 10.0
_HALF_LIFE_TOKENS = 2000.0


def work_of(sequence: Sequence) -> int:
    """What a sentence costs, before it is known how long its target becomes."""
    return sequence.options.beam_size * len(sequence.source_ids)


@dataclass(slots=True)
class _Line:
    """The waiting sentences of one request."""

    count: int = 0
    work: int = 0


@dataclass(slots=True)
class _RecentRatio:
    """A quotient of two sums in which the past fades."""

    half_life: float
    numerator: float = 0.0
    denominator: float = 0.0

    def add(self, numerator: float, denominator: float) -> None:
        fade = 0.5 ** (denominator / self.half_life)
        self.numerator = self.numerator * fade + numerator
        self.denominator = self.denominator * fade + denominator

    @property
    def value(self) -> float | None:
        return self.numerator / self.denominator if self.denominator and self.numerator else None


class WorkerLoad:
    """The sentences given to one worker that have not left, and how fast it works. One thread."""

    def __init__(self) -> None:
        self.outstanding_work = 0
        """Of the sentences that wait or run."""
        self.outstanding_short_work = 0
        """Of them, those of short requests."""
        self._num_outstanding = 0
        self._outstanding_tokens = 0
        self._lines: dict[str, _Line] = {}
        self._row_steps_per_second = _RecentRatio(_HALF_LIFE_SECONDS)
        self._targets_per_source = _RecentRatio(_HALF_LIFE_TOKENS)

    def add(self, sequence: Sequence, *, is_short: bool = False) -> None:
        """A sentence was given to the worker; tell whether its request is a short one."""
        self._num_outstanding += 1
        self._outstanding_tokens += len(sequence.source_ids)
        self.outstanding_work += work_of(sequence)
        self.outstanding_short_work += is_short * work_of(sequence)
        line = self._lines.setdefault(sequence.request_id, _Line())
        line.count += 1
        line.work += work_of(sequence)

    def stop_waiting(self, sequence: Sequence) -> None:
        """A sentence joined the batch, or left without having joined."""
        line = self._lines[sequence.request_id]
        line.count -= 1
        line.work -= work_of(sequence)
        if not line.count:
            del self._lines[sequence.request_id]

    def leave(self, sequence: Sequence, *, is_short: bool = False) -> None:
        """A sentence left; told as it was to `add`."""
        self._num_outstanding -= 1
        self._outstanding_tokens -= len(sequence.source_ids)
        self.outstanding_work -= work_of(sequence)
        self.outstanding_short_work -= is_short * work_of(sequence)

    def work_before(self, is_short: bool) -> tuple[int, int]:
        """How busy the worker is for a request: short ones do not wait for documents. Compare with other workers'."""
        return (self.outstanding_short_work if is_short else 0), self.outstanding_work

    @property
    def mean_length(self) -> float:
        """Source tokens of a sentence that waits or runs here, 0 without any."""
        return self._outstanding_tokens / max(1, self._num_outstanding)

    def learn_speed(self, row_steps: int, seconds: float) -> None:
        """The worker did so much in so many seconds while others waited, so with a full batch."""
        if seconds > 0:
            self._row_steps_per_second.add(row_steps, seconds)

    def learn_length(self, source_tokens: int, target_tokens: int) -> None:
        """A sentence of so many source tokens came to so many target tokens."""
        self._targets_per_source.add(target_tokens, source_tokens)

    def seconds_for(self, work: float) -> float | None:
        """How long work would take, None when nothing is known."""
        speed, ratio = self._row_steps_per_second.value, self._targets_per_source.value
        return None if speed is None or ratio is None else work * ratio / speed

    def seconds_until_done(self, num_sentences: float, work: float) -> float | None:
        """When a new request of so many sentences, so much work in all, would be done at best.

        Requests take turns, so before its last sentence each other request runs as many of its own, or all. Where
        nobody waits the answer is 0: an estimate that odd traffic spoiled would go on refusing who could better it.
        """
        if not self._lines:
            return 0.0
        ahead = sum(
            line.work * min(1.0, num_sentences / line.count) for line in self._lines.values()
        )
        return self.seconds_for(ahead + work)

    def seconds_until_free(self) -> float | None:
        """How long until nothing would wait if nothing came."""
        return self.seconds_for(sum(line.work for line in self._lines.values()))


def choose_worker(loads: list[WorkerLoad], sequence: Sequence, *, is_short: bool) -> int:
    """Pick the worker that has least to do before a sentence; tell whether its request is a short one.

    Of those that have hardly more to do it is the one whose sentences are most like it in length: what runs together is
    padded to the longest, and what is padded is computed.
    """
    work = [load.work_before(is_short) for load in loads]
    least = min(work)
    near = [
        index
        for index, own in enumerate(work)
        if own[0] <= _HARDLY_MORE * least[0] and own[1] <= _HARDLY_MORE * least[1]
    ]
    length = len(sequence.source_ids)
    return min(near, key=lambda index: abs(length - loads[index].mean_length))
