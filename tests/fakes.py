"""Stand-ins with behaviour: an engine with scripted logits, a clock that is set, an observer that remembers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.engine.base import Encoded, EngineFacts, SearchKind
from service.errors import EngineStepError
from service.rows import Candidates, Edits, RowMoves
from service.stats import Gauges, SequenceStats, StepStats, TextStats

LogProbs = NDArray[np.float32]
Script = Callable[[tuple[int, ...], tuple[int, ...]], LogProbs]
"""(source ids, target prefix) -> log-probabilities of the next token, (V,)."""

EOS = 0
BYTES_PER_TOKEN = 8


def random_script(vocab_size: int, *, seed: int = 0, sharpness: float = 2.0) -> Script:
    """A model that depends on the whole prefix, but is nothing else than noise."""

    def script(source: tuple[int, ...], prefix: tuple[int, ...]) -> LogProbs:
        key = zlib.crc32(repr((seed, source, prefix)).encode())
        logits = np.random.default_rng(key).normal(size=vocab_size) * sharpness
        log_probs: LogProbs = (logits - np.logaddexp.reduce(logits)).astype(np.float32)
        return log_probs

    return script


def copy_script(vocab_size: int) -> Script:
    """A model that is almost sure to repeat the source, EOS included."""

    def script(source: tuple[int, ...], prefix: tuple[int, ...]) -> LogProbs:
        wanted = source[len(prefix)] if len(prefix) < len(source) else EOS
        log_probs = np.full(vocab_size, np.log(0.1 / (vocab_size - 1)), np.float32)
        log_probs[wanted] = np.log(0.9)
        return log_probs

    return script


@dataclass(frozen=True, slots=True)
class FakeEncoded:
    """Sources, as they are."""

    sources: tuple[tuple[int, ...], ...]

    @property
    def num_padded_tokens(self) -> int:
        return len(self.sources) * max(map(len, self.sources))


@dataclass(frozen=True, slots=True)
class FakeRow:
    """A row: what its cache holds, and the token that the next step feeds (None: the start)."""

    sentence: int
    cached: tuple[int, ...] = ()
    next_token: int | None = None

    def fed(self) -> FakeRow:
        """The row after its next token went into the cache."""
        if self.next_token is None:
            return self
        return FakeRow(self.sentence, (*self.cached, self.next_token))


class FakeDecoder:
    """Keeps each row's prefix, and asks the script."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.sources: list[tuple[int, ...]] = []
        self.rows: list[FakeRow] = []
        self.num_admitted = 0

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def longest_source(self) -> int:
        return max(map(len, self.sources), default=0)

    @property
    def live_bytes(self) -> int:
        tokens = sum(len(row.cached) for row in self.rows) + sum(map(len, self.sources))
        return BYTES_PER_TOKEN * tokens

    @property
    def reserved_bytes(self) -> int:
        return self.live_bytes

    def admit(self, encoded: Encoded) -> None:
        assert isinstance(encoded, FakeEncoded)
        self.num_admitted += len(encoded.sources)
        for source in encoded.sources:
            self.rows.append(FakeRow(len(self.sources)))
            self.sources.append(source)

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        engine = self._engine
        assert self.rows
        assert 1 <= num_candidates <= engine.facts.vocab_size
        engine.before_step(self)
        self.rows = [row.fed() for row in self.rows]
        log_probs = np.stack(
            [engine.script(self.sources[row.sentence], row.cached) for row in self.rows]
        )
        at = (edits.rows, edits.token_ids)
        log_probs[at] = log_probs[at] * edits.scales + edits.biases
        token_ids = np.argsort(-log_probs, axis=1, kind="stable")[:, :num_candidates]
        return Candidates(token_ids, np.take_along_axis(log_probs, token_ids, axis=1))

    def gather(self, moves: RowMoves) -> None:
        kept = moves.kept_sentences.tolist()
        new_sentences = np.repeat(np.arange(len(kept)), moves.row_counts).tolist()
        parents = [self.rows[row] for row in moves.parent_rows.tolist()]
        assert [kept[place] for place in new_sentences] == [row.sentence for row in parents]
        self.rows = [
            FakeRow(place, parent.cached, token)
            for place, parent, token in zip(
                new_sentences, parents, moves.token_ids.tolist(), strict=True
            )
        ]
        self.sources = [self.sources[place] for place in kept]

    def reset(self) -> None:
        self.sources, self.rows = [], []


class FakeEngine:
    """An engine with scripted logits.

    Args:
        script: What the model thinks.
        vocab_size: V; EOS is token 0.
        before_step: Called before each decoder step with the decoder; may raise or block.
        before_encode: Called with the sources before they are encoded; may raise.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        vocab_size: int = 16,
        before_step: Callable[[FakeDecoder], None] = lambda decoder: None,
        before_encode: Callable[[Sequence[tuple[int, ...]]], None] = lambda sources: None,
    ) -> None:
        self.script = script or random_script(vocab_size)
        self.before_step = before_step
        self.before_encode = before_encode
        self.decoders: list[FakeDecoder] = []
        self._facts = EngineFacts(vocab_size=vocab_size, eos_id=EOS)

    @property
    def facts(self) -> EngineFacts:
        return self._facts

    def cache_bytes(
        self, num_rows: int, target_length: int, num_sentences: int, source_length: int
    ) -> int:
        return BYTES_PER_TOKEN * (num_rows * target_length + num_sentences * source_length)

    def create_decoder(self) -> FakeDecoder:
        self.decoders.append(FakeDecoder(self))
        return self.decoders[-1]

    def encode(
        self, sources: Sequence[tuple[int, ...]], kinds: Sequence[SearchKind] = ()
    ) -> FakeEncoded:
        self.before_encode(sources)
        return FakeEncoded(tuple(sources))


class FakeClock:
    """A clock that is set by hand, or ticks a little each time it is read."""

    def __init__(self, now: float = 0.0, *, tick: float = 0.0) -> None:
        self.now = now
        self._tick = tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass
class CollectingObserver:
    """Remembers everything."""

    steps: list[StepStats] = field(default_factory=list)
    sequences: list[SequenceStats] = field(default_factory=list)
    texts: list[TextStats] = field(default_factory=list)
    gauges: list[Gauges] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)

    def on_step(self, stats: StepStats) -> None:
        self.steps.append(stats)

    def on_sequence(self, stats: SequenceStats) -> None:
        self.sequences.append(stats)

    def on_text(self, stats: TextStats) -> None:
        self.texts.append(stats)

    def on_gauges(self, gauges: Gauges) -> None:
        self.gauges.append(gauges)

    def on_rejected(self, reason: str) -> None:
        self.rejected.append(reason)

    def on_guard(self, model: str, guard: str) -> None:
        self.guards.append(guard)


def failing_once(message: str = "broken") -> Callable[[object], None]:
    """A `before_step` or `before_encode` that fails the first time and then never."""
    calls = iter([EngineStepError(message)])

    def fail(_: object) -> None:
        error = next(calls, None)
        if error is not None:
            raise error

    return fail
