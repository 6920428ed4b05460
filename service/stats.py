"""What the core tells of its work: plain values for an `Observer`, which alone knows who collects them.

Every metric in the table of README.md that speaks of a model follows from these. Values may arrive from any worker
thread.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from service.request import Outcome

__all__ = [
    "Gauges",
    "NullObserver",
    "Observer",
    "SequenceStats",
    "StepStats",
    "TextStage",
    "TextStats",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """One iteration of continuous batching."""

    model: str
    step_seconds: float
    """Everything: plan, encoder, decoder, search, row moves."""
    encode_seconds: float
    """Of them, the encoder; 0 when nobody joined."""
    decode_seconds: float
    """Of them, the decoder graph."""
    num_sequences: int
    num_rows: int
    """Decoder rows that were computed."""
    encoder_padded_tokens: int
    """Positions that the encoder computed, padding included."""
    decoder_padded_tokens: int
    """Rows x the longest source: what the step cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStats:
    """One sentence, once, when it leaves. queue + encode + decode = sentence seconds."""

    model: str
    outcome: Outcome
    source_tokens: int
    """With EOS."""
    target_tokens: int
    """Of the best hypothesis, with EOS; 0 unless finished."""
    queue_seconds: float
    encode_seconds: float
    """0 when it left before it was encoded, and so is the next."""
    decode_seconds: float
    sentence_seconds: float
    truncated: bool
    """A limit cut its best hypothesis."""
    admitted: bool
    """Whether it came as far as the encoder."""
    request_id: str
    """Key of the call that it belongs to."""
    left: float
    """When it left, on the monotonic clock."""


class TextStage(enum.Enum):
    """What is done to texts. The values are the labels of `dragoman_text_seconds`."""

    PREPARE = "prepare"
    """From texts to token ids: segment and tokenize."""
    DETOKENIZE = "detokenize"
    """From hypotheses to texts: detokenize and reassemble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStats:
    """The texts of one request went through one stage."""

    model: str
    request_id: str
    """Key of the call that it belongs to."""
    stage: TextStage
    began: float
    """On the monotonic clock."""
    seconds: float
    num_texts: int
    num_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """How much a model holds now, all its workers together. All but the last are exactly 0 when nothing is running."""

    model: str
    queue_depth: int
    """Sentences waiting."""
    running_sequences: int
    running_rows: int
    kv_cache_bytes: int
    """Bytes of live rows."""
    kv_reserved_bytes: int
    """Memory held."""


class Observer(Protocol):
    """Receives what happened. Called from worker threads and the event loop: must be quick and thread-safe."""

    def on_step(self, stats: StepStats) -> None:
        """A step ended."""

    def on_sequence(self, stats: SequenceStats) -> None:
        """A sentence left."""

    def on_text(self, stats: TextStats) -> None:
        """The texts of a request went through a stage."""

    def on_gauges(self, gauges: Gauges) -> None:
        """What a model holds has changed."""

    def on_rejected(self, reason: str) -> None:
        """A request was refused: queue_full, deadline, invalid, rate or draining."""

    def on_guard(self, model: str, guard: str) -> None:
        """A guard acted on an answer: truncated, repetition, copied, placeholder."""


class NullObserver:
    """Collects nothing."""

    def on_step(self, stats: StepStats) -> None:
        pass

    def on_sequence(self, stats: SequenceStats) -> None:
        pass

    def on_text(self, stats: TextStats) -> None:
        pass

    def on_gauges(self, gauges: Gauges) -> None:
        pass

    def on_rejected(self, reason: str) -> None:
        pass

    def on_guard(self, model: str, guard: str) -> None:
        pass
