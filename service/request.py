"""The types that travel through the ten stages. See ARCHITECTURE.md, "The way a request goes".

Plain frozen values: stages share these types, never each other's objects. Text lives in `TranslationRequest`,
`ValidRequest` and `Translation`; token ids live in `Sequence` and `Hypothesis`; nothing here holds a tensor.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from service.errors import DragomanError

__all__ = [
    "DecodingOptions",
    "FinishReason",
    "Hypothesis",
    "Outcome",
    "Segment",
    "Sequence",
    "SequenceResult",
    "Translation",
    "TranslationOptions",
    "TranslationRequest",
    "ValidRequest",
]


class FinishReason(enum.Enum):
    """Why a hypothesis ended."""

    STOP = "stop"
    """The model ended the sentence."""
    LENGTH = "length"
    """A limit cut it: the answer is marked `truncated`."""


class Outcome(enum.Enum):
    """How a sequence left the scheduler. The values are the labels of `dragoman_sentences_total`."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationOptions:
    """Options as a client sent them; None stands for "not set"."""

    beam_size: int | None = None
    length_penalty: float | None = None
    max_target_tokens: int | None = None
    min_target_tokens: int | None = None
    num_alternatives: int = 0
    return_scores: bool = False
    unimplemented: tuple[str, ...] = ()
    """Names of the options that were set and that this version does not build yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRequest:
    """Stage 1: what the edge made of a wire message. Nothing is checked yet."""

    contents: tuple[str, ...]
    source_language_code: str
    target_language_code: str
    model: str = ""
    mime_type: str = ""
    options: TranslationOptions = field(default_factory=TranslationOptions)
    request_id: str = ""
    deadline: float | None = None
    """Absolute, on the monotonic clock, in seconds. None: no deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How to search for a target, all values set and checked."""

    beam_size: int = 4
    length_penalty: float = 1.0
    """alpha: score = sum of log-probabilities / L^alpha."""
    max_target_tokens: int = 512
    """Longest answer, EOS included."""
    min_target_tokens: int = 0
    """Shortest answer, EOS included."""
    num_hypotheses: int = 1
    """How many answers are wanted, at most `beam_size`."""
    full_vocabulary: bool = False
    """Search over all words although the model has a shortlist: for demands that cannot be met within a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidRequest:
    """Stage 2: a request that can be served; everything after validation may rely on it."""

    contents: tuple[str, ...]
    model: str
    """Name of the loaded model that answers."""
    options: DecodingOptions
    return_scores: bool
    request_id: str
    deadline: float | None
    item_errors: Mapping[int, DragomanError] = field(default_factory=dict)
    """Faults of single texts, by their place in `contents`: these texts are not translated, their neighbours are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """Stage 3: one sentence on its way through the scheduler."""

    sequence_id: int
    """Unique in the process."""
    request_id: str
    """Key of the round-robin between waiting requests; unique for each call."""
    source_ids: tuple[int, ...]
    """With EOS. Length S."""
    options: DecodingOptions
    max_length: int
    """This sentence's own L_max, in generated tokens with EOS: min(request's limit, 2 S + 10)."""
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One answer to a sequence."""

    token_ids: tuple[int, ...]
    """Without EOS."""
    log_prob: float
    """Sum over the generated tokens, EOS included when there is one."""
    score: float
    """log_prob / L^alpha, L generated tokens with EOS. Higher is better."""
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceResult:
    """Stage 8: what became of a sequence. Exactly one for each sequence that was submitted."""

    sequence_id: int
    outcome: Outcome
    hypotheses: tuple[Hypothesis, ...] = ()
    """Best first; empty unless `outcome` is FINISHED."""
    error: DragomanError | None = None
    """Set unless `outcome` is FINISHED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One sentence of an answer: where it came from and where it went, as offsets in characters."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Stage 9: the answer to one text."""

    translated_text: str
    alternatives: tuple[str, ...] = ()
    """Other translations, best first. The k-th is made of the k-th best hypothesis of each segment."""
    alternative_scores: tuple[float, ...] = ()
    """One for each of `alternatives` when scores were asked for, else empty."""
    score: float | None = None
    """Mean of the segment scores weighted by target length; None unless asked for, or when nothing was translated."""
    truncated: bool = False
    segments: tuple[Segment, ...] = ()
    error: DragomanError | None = None
    """Set when this text failed; its neighbours are not affected."""
