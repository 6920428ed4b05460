"""Stages 4 to 8 of 10 in one loop: the continuous batching of one worker, without threads.

Data moves one way: plan, encoder, decoder, search, results. All that can be told apart is elsewhere: policy in
`scheduler`, tensors in `engine`, search in `decoding`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from service.config import SchedulerConfig
from service.decoding.beam import BeamSearch
from service.engine.base import Decoder, Engine, SearchKind
from service.errors import DragomanError, EngineStepError
from service.request import FinishReason, Outcome, Sequence
from service.scheduler.lanes import Lane
from service.scheduler.scheduler import Departure, Scheduler
from service.stats import SequenceStats, StepStats

__all__ = ["Driver", "StepReport", "sequence_stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one step did."""

    departures: list[Departure]
    """Sentences that left, each exactly once."""
    admitted: list[Sequence]
    stats: StepStats | None
    """None when nothing was decoded."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What runs in one lane."""

    decoder: Decoder
    search: BeamSearch


@dataclass(slots=True)
class _Stopwatch:
    """Seconds and padded tokens of one step's graphs."""

    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    encoder_padded_tokens: int = 0
    decoder_padded_tokens: int = 0
    num_rows: int = 0


class Driver:
    """The scheduler of one worker, with a search and a decoder for each lane. Used by one thread."""

    def __init__(
        self,
        *,
        model: str,
        engine: Engine,
        config: SchedulerConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self._engine = engine
        self._clock = clock
        facts = engine.facts
        self._batches = {
            lane: _Batch(
                engine.create_decoder(),
                BeamSearch(eos_id=facts.eos_id, vocab_size=facts.vocab_size),
            )
            for lane in Lane
        }
        self._scheduler = Scheduler(config, engine.cache_bytes)

    @property
    def num_waiting(self) -> int:
        """Sentences that have not run yet."""
        return self._scheduler.num_waiting

    @property
    def num_running(self) -> int:
        """Sentences that are being decoded."""
        return self._scheduler.num_running

    @property
    def is_crowded(self) -> bool:
        """Whether so many short requests are running that it pays to wait for company."""
        return self._scheduler.is_crowded

    @property
    def num_rows(self) -> int:
        """Decoder rows."""
        return sum(batch.decoder.num_rows for batch in self._batches.values())

    @property
    def live_bytes(self) -> int:
        """Bytes of caches that hold something."""
        return sum(batch.decoder.live_bytes for batch in self._batches.values())

    @property
    def reserved_bytes(self) -> int:
        """Memory held for caches."""
        return sum(batch.decoder.reserved_bytes for batch in self._batches.values())

    def add(self, sequence: Sequence) -> None:
        """Let a sentence wait for its turn."""
        self._scheduler.add(sequence, self._clock())

    def abort(self, sequence_id: int) -> None:
        """Let a sentence leave before the next step."""
        self._scheduler.abort(sequence_id)

    def seconds_until_step(self) -> float | None:
        """How long to wait before the next step: 0 for none, None when there is nothing to do."""
        return self._scheduler.seconds_until_step(self._clock())

    def step(self) -> StepReport:
        """Run one iteration of continuous batching: plan, encode the new, decode a lane, advance its search."""
        began = self._clock()
        watch = _Stopwatch()
        plan = self._scheduler.schedule(began)
        departures, num_sequences = plan.departures, plan.num_running
        for lane, kept in plan.kept.items():
            left = self._batches[lane]
            left.decoder.gather(left.search.keep(kept))
        batch = self._batches[plan.lane]
        if plan.admitted:
            failed = self._admit(batch, plan.admitted, watch)
            departures += failed
            num_sequences -= len(failed)
        if num_sequences:
            departures += self._decode(batch, watch)
        return StepReport(
            departures=departures,
            admitted=plan.admitted,
            stats=self._step_stats(watch, num_sequences, self._clock() - began),
        )

    def close(self, error: DragomanError, outcome: Outcome) -> list[Departure]:
        """Let every sentence leave."""
        departures = self._scheduler.close(error, outcome, self._clock())
        for batch in self._batches.values():
            _reset(batch)
        return departures

    def _admit(self, batch: _Batch, admitted: list[Sequence], watch: _Stopwatch) -> list[Departure]:
        """Encode sentences and give each a row. When the encoder fails, only they fail; else all of the lane do."""
        began = self._clock()
        try:
            encoded = self._engine.encode(
                [sequence.source_ids for sequence in admitted],
                [
                    SearchKind(sequence.options.full_vocabulary, sequence.options.beam_size == 1)
                    for sequence in admitted
                ],
            )
        except EngineStepError as error:
            return self._scheduler.fail(error, self._clock(), last=len(admitted))
        try:
            batch.decoder.admit(encoded)
        except EngineStepError as error:
            failed = self._scheduler.fail(error, self._clock())
            _reset(batch)
            return failed
        batch.search.add([(sequence.options, sequence.max_length) for sequence in admitted])
        watch.encode_seconds = self._clock() - began
        watch.encoder_padded_tokens = encoded.num_padded_tokens
        self._scheduler.note_encoded(admitted, watch.encode_seconds)
        return []

    def _decode(self, batch: _Batch, watch: _Stopwatch) -> list[Departure]:
        """One decoder step of a lane's rows. When it fails, its sentences fail and nothing of them stays."""
        decoder, search = batch.decoder, batch.search
        watch.num_rows = decoder.num_rows
        watch.decoder_padded_tokens = watch.num_rows * decoder.longest_source
        began = self._clock()
        try:
            candidates = decoder.decode(search.num_candidates, search.edits())
        except EngineStepError as error:
            departures = self._scheduler.fail(error, self._clock())
            _reset(batch)
            return departures
        watch.decode_seconds = self._clock() - began
        advance = search.advance(candidates)
        decoder.gather(advance.moves)
        return self._scheduler.finish(advance.answers, self._clock())

    def _step_stats(
        self, watch: _Stopwatch, num_sequences: int, seconds: float
    ) -> StepStats | None:
        if not num_sequences:
            return None
        return StepStats(
            model=self.model,
            step_seconds=seconds,
            encode_seconds=watch.encode_seconds,
            decode_seconds=watch.decode_seconds,
            num_sequences=num_sequences,
            num_rows=watch.num_rows,
            encoder_padded_tokens=watch.encoder_padded_tokens,
            decoder_padded_tokens=watch.decoder_padded_tokens,
        )


def _reset(batch: _Batch) -> None:
    batch.decoder.reset()
    batch.search.reset()


def sequence_stats(model: str, departure: Departure) -> SequenceStats:
    """What to tell the observer of a sentence that left."""
    best = departure.result.hypotheses[0] if departure.result.hypotheses else None
    truncated = best is not None and best.finish_reason is FinishReason.LENGTH
    target_tokens = 0 if best is None else len(best.token_ids) + (not truncated)
    admitted = departure.admitted
    queue_seconds = (departure.left if admitted is None else admitted) - departure.arrived
    sentence_seconds = departure.left - departure.arrived
    return SequenceStats(
        model=model,
        outcome=departure.result.outcome,
        source_tokens=len(departure.sequence.source_ids),
        target_tokens=target_tokens,
        queue_seconds=queue_seconds,
        encode_seconds=departure.encode_seconds,
        decode_seconds=sentence_seconds - queue_seconds - departure.encode_seconds,
        sentence_seconds=sentence_seconds,
        truncated=truncated,
        admitted=admitted is not None,
        request_id=departure.sequence.request_id,
        left=departure.left,
    )
