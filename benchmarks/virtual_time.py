"""Two policies in virtual time: who waits how long when a step costs what its rows cost.

The scheduler is the server's own, and so is the dealing out of sentences; the request-level batcher is a copy of the
rule of `benchmarks.request_batcher`. There is no model, no thread and no network, so the same arrivals give the same
figures on any machine, however busy. What is left out (the front, work on texts, the ends of beams) is the same for
both. `python -m benchmarks.virtual_time` prints the figures.
"""

from __future__ import annotations

import argparse
import collections
import heapq
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from rich.table import Table

from benchmarks.arrivals import Arrival, draw_mix, poisson_arrivals
from benchmarks.call_times import CallTime, percentile
from benchmarks.corpus import load_texts
from benchmarks.sentences import create_sentences, keep_single_sentences
from export.bundle import load_bundle
from model.tokenizer import Tokenizer
from service.config import SchedulerConfig
from service.loading import embedded_bundles
from service.request import FinishReason, Hypothesis
from service.request import Sequence as Sentence
from service.scheduler.lanes import Lane
from service.scheduler.load import WorkerLoad, choose_worker
from service.scheduler.queue import SHORT_SENTENCES
from service.scheduler.scheduler import Scheduler

__all__ = [
    "Batcher",
    "Clock",
    "Continuous",
    "StepCosts",
    "compare",
    "measure_capacity",
    "run_arrivals",
]

_ANSWER = (Hypothesis(token_ids=(), log_prob=0.0, score=0.0, finish_reason=FinishReason.STOP),)
_SENTENCE_NUMBERS = itertools.count()
_NUM_WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Seconds on one core, fitted to steps of a server with the embedded model in int8 and its shortlist."""

    step: float = 0.4e-3
    row: float = 0.045e-3
    encoding: float = 1.6e-3
    """Whenever somebody joins: the encoder, lists of words and their columns, larger caches."""
    encoded_token: float = 0.04e-3

    def of(self, num_rows: int, encoded_tokens: int) -> float:
        """One step that lets sentences of so many tokens join."""
        encoding = self.encoding + self.encoded_token * encoded_tokens if encoded_tokens else 0.0
        return encoding + self.step + self.row * num_rows


class Clock:
    """Runs what is due, in the order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, function: Callable[[], None]) -> None:
        """Let something happen."""
        heapq.heappush(self._due, (when, next(self._numbers), function))

    def run(self) -> None:
        """Until nothing is due any more."""
        while self._due:
            self.now, _, function = heapq.heappop(self._due)
            function()


class _Worker:
    """Steps of one engine worker; a sentence ends after as many steps as its target has tokens."""

    def __init__(
        self,
        clock: Clock,
        config: SchedulerConfig,
        costs: StepCosts,
        on_step: Callable[[list[int]], None],
    ) -> None:
        self._clock = clock
        self._costs = costs
        self._on_step = on_step
        self._scheduler = Scheduler(config, lambda *sizes: 0)
        self._lanes: dict[Lane, list[tuple[Sentence, int]]] = {lane: [] for lane in Lane}
        self._lane = Lane.SHORT
        self.is_busy = False

    def add(self, sentence: Sentence) -> None:
        """Give it something to do, and begin if nothing is under way."""
        self._scheduler.add(sentence, self._clock.now)
        if not self.is_busy:
            self.is_busy = True
            self._clock.at(self._clock.now, self._begin_step)

    def _begin_step(self) -> None:
        plan = self._scheduler.schedule(self._clock.now)
        self._lane = plan.lane
        running = self._lanes[plan.lane] + [(sentence, 0) for sentence in plan.admitted]
        rows = sum(each.options.beam_size if age else 1 for each, age in running)
        tokens = sum(len(sentence.source_ids) for sentence in plan.admitted)
        self._lanes[plan.lane] = [(sentence, age + 1) for sentence, age in running]
        self._clock.at(self._clock.now + self._costs.of(rows, tokens), self._end_step)

    def _end_step(self) -> None:
        running = self._lanes[self._lane]
        ended = {
            place: sentence.sequence_id
            for place, (sentence, age) in enumerate(running)
            if age >= len(sentence.source_ids)
        }
        self._scheduler.finish(dict.fromkeys(ended, _ANSWER), self._clock.now)
        self._lanes[self._lane] = [each for place, each in enumerate(running) if place not in ended]
        self.is_busy = self._scheduler.seconds_until_step(self._clock.now) is not None
        if self.is_busy:
            self._clock.at(self._clock.now, self._begin_step)
        self._on_step(list(ended.values()))


class Continuous:
    """Sentences join and leave at every step: what `service.core` does."""

    def __init__(self, clock: Clock, config: SchedulerConfig, costs: StepCosts) -> None:
        self._open: dict[int, Callable[[], None]] = {}
        self._loads = [WorkerLoad() for _ in range(_NUM_WORKERS)]
        self._workers = [_Worker(clock, config, costs, self._leave) for _ in range(_NUM_WORKERS)]

    def call(self, sentences: Sequence[Sentence], on_sentence: Callable[[], None]) -> None:
        """Deal sentences out; tell of each when it is translated."""
        is_short = len(sentences) <= SHORT_SENTENCES
        for sentence in sentences:
            index = choose_worker(self._loads, sentence, is_short=is_short)
            self._loads[index].add(sentence, is_short=is_short)

            def leave(load: WorkerLoad = self._loads[index], sentence: Sentence = sentence) -> None:
                load.leave(sentence, is_short=is_short)
                on_sentence()

            self._open[sentence.sequence_id] = leave
            self._workers[index].add(sentence)

    def _leave(self, sequence_ids: list[int]) -> None:
        for sequence_id in sequence_ids:
            self._open.pop(sequence_id)()


class Batcher:
    """A batch runs to its end before the next begins; see `benchmarks.request_batcher`."""

    def __init__(
        self,
        clock: Clock,
        config: SchedulerConfig,
        costs: StepCosts,
        *,
        max_batch_sentences: int = 32,
        max_delay_seconds: float = 0.005,
    ) -> None:
        self._clock = clock
        self._max_batch_sentences = max_batch_sentences
        self._max_delay_seconds = max_delay_seconds
        self._waiting: collections.deque[tuple[float, Sequence[Sentence], Callable[[], None]]] = (
            collections.deque()
        )
        self._batches: list[list[Callable[[], None]]] = [[] for _ in range(_NUM_WORKERS)]
        wide = replace(config, max_batch_rows=1_000)
        self._workers = [
            _Worker(clock, wide, costs, self._end_of(index)) for index in range(_NUM_WORKERS)
        ]

    def call(self, sentences: Sequence[Sentence], on_sentence: Callable[[], None]) -> None:
        """Let a call wait for a batch; tell of its sentences at the end of that."""
        self._waiting.append((self._clock.now, sentences, on_sentence))
        self._start_batches()

    def _start_batches(self) -> None:
        for index, worker in enumerate(self._workers):
            if worker.is_busy or not self._waiting:
                continue
            begins = self._waiting[0][0] + self._max_delay_seconds
            waiting = sum(len(sentences) for _, sentences, _ in self._waiting)
            if waiting < self._max_batch_sentences and self._clock.now < begins:
                self._clock.at(begins, self._start_batches)
                return
            room = self._max_batch_sentences
            while self._waiting and (
                len(self._waiting[0][1]) <= room or room == self._max_batch_sentences
            ):
                _, sentences, on_sentence = self._waiting.popleft()
                room -= len(sentences)
                self._batches[index] += [on_sentence] * len(sentences)
                for sentence in sentences:  # as calls of their own: they are one batch
                    worker.add(replace(sentence, request_id=str(sentence.sequence_id)))

    def _end_of(self, index: int) -> Callable[[list[int]], None]:
        def on_step(_: list[int]) -> None:
            if self._workers[index].is_busy:
                return
            batch, self._batches[index] = self._batches[index], []
            for on_sentence in batch:
                on_sentence()
            self._start_batches()

        return on_step


Server = Continuous | Batcher


def run_arrivals(
    server: Server, clock: Clock, arrivals: Sequence[Arrival], sentences: dict[str, Sentence]
) -> list[CallTime]:
    """Let calls come in at their times; gives what became of each, in the order of their ends."""
    found: list[CallTime] = []
    for arrival in arrivals:
        clock.at(arrival.at, partial(_call, server, clock, arrival, sentences, found.append))
    clock.run()
    return found


def measure_capacity(
    server: Server, clock: Clock, sentences: dict[str, Sentence], seconds: float
) -> float:
    """Calls a second, one in ten a document, when 32 are under way at any time."""
    mix = itertools.cycle(draw_mix(2000, list(sentences), 7))
    ends: list[float] = []

    def ask(call: CallTime | None = None) -> None:
        if call is not None:
            ends.append(call.ended)
        if clock.now < seconds:
            _call(server, clock, Arrival(clock.now, next(mix)), sentences, ask)

    for _ in range(32):
        clock.at(0.0, ask)
    clock.run()
    return sum(end < seconds for end in ends) / seconds


def _call(
    server: Server,
    clock: Clock,
    arrival: Arrival,
    sentences: dict[str, Sentence],
    on_end: Callable[[CallTime], None],
) -> None:
    left = len(arrival.texts)
    request_id = str(next(_SENTENCE_NUMBERS))

    def on_sentence() -> None:
        nonlocal left
        left -= 1
        if not left:
            on_end(
                CallTime(
                    num_texts=len(arrival.texts),
                    scheduled=arrival.at,
                    sent=arrival.at,
                    ended=clock.now,
                    answered=True,
                )
            )

    server.call(
        [
            replace(sentences[text], sequence_id=next(_SENTENCE_NUMBERS), request_id=request_id)
            for text in arrival.texts
        ],
        on_sentence,
    )


def compare(
    sentences: dict[str, Sentence], share: float, *, num_slices: int = 10, seconds: float = 15.0
) -> dict[str, list[CallTime]]:
    """Let the same calls come to both, at a share of the batcher's capacity."""
    config, costs = SchedulerConfig(), StepCosts()
    clock = Clock()
    capacity = measure_capacity(Batcher(clock, config, costs), clock, sentences, 60.0)
    found: dict[str, list[CallTime]] = {"continuous": [], "batcher": []}
    for seed in range(num_slices):
        arrivals = poisson_arrivals(share * capacity, seconds, list(sentences), seed)
        for name, create in (("continuous", Continuous), ("batcher", Batcher)):
            clock = Clock()
            found[name] += run_arrivals(create(clock, config, costs), clock, arrivals, sentences)
    return found


def main() -> int:
    """Print what one-sentence calls and documents wait for at three rates."""
    argparse.ArgumentParser(
        prog="python -m benchmarks.virtual_time", description=__doc__
    ).parse_args()
    bundle = load_bundle(embedded_bundles()[0])
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    texts = keep_single_sentences(load_texts(), bundle.manifest, tokenizer)
    sentences = dict(zip(texts, create_sentences(texts, bundle.manifest, tokenizer), strict=True))
    table = Table("arrivals", "policy", "p50", "p95", "p99", "documents p50", title="milliseconds")
    for share in (0.5, 0.7, 1.1):
        for name, calls in compare(sentences, share).items():
            singles = [call.seconds for call in calls if call.num_texts == 1]
            documents = [call.seconds for call in calls if call.num_texts > 1]
            values = [percentile(singles, each) for each in (0.5, 0.95, 0.99)]
            values.append(percentile(documents, 0.5))
            table.add_row(f"{share:.0%}", name, *(f"{value * 1e3:.0f}" for value in values))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
