"""The file that `dragoman train` reads: what to train, on what, how long.

    output = "runs/en-pt"          # made if missing; a run that stands there already is continued

    [model]
    preset = "tiny"                # or start_from = "a/checkpoint"; every field of TransformerConfig fits here

    [tokenizer]
    vocab_size = 16000             # or path = "a/tokenizer.spm"

    [data]
    train = ["train.tsv.xz", ["more.en", "more.pt"]]
    valid = ["valid.tsv"]

    [training]
    max_steps = 50000

Paths are relative to the file. A file with faults is refused with one message that lists all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from model.parallel_text import ParallelFile
from model.tokenizer import TokenizerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSection:
    """`[tokenizer]`: a vocabulary to load, or how to train one."""

    path: Path | None = None
    """SentencePiece model of the source, or of both sides. None: train one on the training data."""

    target_path: Path | None = None
    """SentencePiece model of the target when the vocabularies are separate."""

    kind: TokenizerKind = "unigram"
    """Which algorithm trains it."""

    vocab_size: int = 8000
    """Pieces to learn, for each side when they are separate."""

    joint: bool = True
    """One vocabulary for both sides."""

    normalization: str = "nmt_nfkc"
    """SentencePiece's normalization rule."""

    byte_fallback: bool = True
    """Spell unseen characters as bytes."""

    split_digits: bool = False
    """Every digit is a piece of its own."""

    max_sentences: int = 1_000_000
    """Pairs of the training data, from its start, that the vocabulary is learned from."""

    def __post_init__(self) -> None:
        _require_all(
            ("vocab_size", self.vocab_size >= 1, "at least 1", self.vocab_size),
            ("max_sentences", self.max_sentences >= 1, "at least 1", self.max_sentences),
            (
                "target_path",
                self.target_path is None or self.path is not None,
                "given together with `path`",
                str(self.target_path),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    """`[data]`: where the sentence pairs are. A TSV file is a string, two parallel files are a list of two."""

    train: tuple[ParallelFile, ...]
    """To learn from."""

    valid: tuple[ParallelFile, ...] = ()
    """Held out: measured now and then, decides which checkpoint is `best`. None: no checkpoint is."""

    max_source_tokens: int = 256
    """Longer sources are left out, and counted in the log."""

    max_target_tokens: int = 256
    """Longer targets are left out, and counted in the log."""

    def __post_init__(self) -> None:
        _require_all(
            ("train", len(self.train) > 0, "at least one file", []),
            (
                "max_source_tokens",
                self.max_source_tokens >= 1,
                "at least 1",
                self.max_source_tokens,
            ),
            (
                "max_target_tokens",
                self.max_target_tokens >= 1,
                "at least 1",
                self.max_target_tokens,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSection:
    """`[training]`: how long, how fast, and what is kept."""

    max_steps: int = 100_000
    """Updates after which training ends."""

    batch_tokens: int = 4096
    """Padded tokens of a batch: rows times the longest side."""

    accumulation: int = 1
    """Batches of one update, for each process."""

    learning_rate: float | None = None
    """Peak of the schedule. None: the paper's, (d_model * warmup_steps)^-0.5."""

    warmup_steps: int = 4000
    """Updates until the peak."""

    cooldown_steps: int = 0
    """Last updates in which the rate falls linearly to zero."""

    label_smoothing: float = 0.1
    """Probability mass spread over the vocabulary."""

    clip_norm: float = 1.0
    """Longest gradient; 0 does not clip."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Type that matrix products are computed in; weights and sums stay float32."""

    device: str = "auto"
    """"auto" takes a GPU where there is one, each process its own; else "cpu", "cuda", "cuda:1", ..."""

    log_every_steps: int = 50
    """Updates between two lines of the log."""

    validate_every_steps: int = 1000
    """Updates between two measurements on the held-out data."""

    checkpoint_every_steps: int = 1000
    """Updates between two checkpoints."""

    keep_checkpoints: int = 5
    """Newest checkpoints that are kept, beside the best one."""

    average_checkpoints: int = 0
    """At the end the mean of so many last checkpoints is written as `averaged`; 0 writes none."""

    patience: int = 0
    """Validations without a better loss after which training stops; 0 never stops early."""

    score_pairs: int = 0
    """First held-out pairs that each validation also translates (greedily) and scores by BLEU and chrF; 0: none."""

    tensorboard: bool = False
    """Also write event files for TensorBoard; needs the package `tensorboard`."""

    def __post_init__(self) -> None:
        counts = (
            *("max_steps", "batch_tokens", "accumulation", "warmup_steps", "log_every_steps"),
            *("validate_every_steps", "checkpoint_every_steps", "keep_checkpoints"),
        )
        optional_counts = (
            *("cooldown_steps", "clip_norm", "average_checkpoints", "patience"),
            "score_pairs",
        )
        smoothing, rate = self.label_smoothing, self.learning_rate
        average, keep = self.average_checkpoints, self.keep_checkpoints
        _require_all(
            *(
                (name, getattr(self, name) >= 1, "at least 1", getattr(self, name))
                for name in counts
            ),
            *(
                (name, getattr(self, name) >= 0, "at least 0", getattr(self, name))
                for name in optional_counts
            ),
            ("label_smoothing", 0.0 <= smoothing < 1.0, "in [0, 1)", smoothing),
            ("learning_rate", rate is None or 0.0 < rate < math.inf, "above 0 and finite", rate),
            ("average_checkpoints", average <= keep, "at most `keep_checkpoints`", average),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """`[model]`: a preset, fields of `TransformerConfig`, or a checkpoint to start from."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """Sizes and choices; vocabulary sizes and special ids come from the tokenizer."""

    start_from: Path | None = None
    """Checkpoint whose weights, configuration and vocabulary training starts with; only `dropout` may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that `dragoman train` needs to know."""

    path: Path
    """The file that this was read from."""

    output: Path
    """Folder of the run: checkpoints, vocabulary, log."""

    seed: int
    """Decides first weights, order of the data and dropout."""

    model: ModelSection
    tokenizer: TokenizerSection
    data: DataSection
    training: TrainingSection


def _require_all(*rules: tuple[str, bool, str, object]) -> None:
    """Raise one error for all rules (name, holds, what must hold, value) that do not hold."""
    faults = [
        f"`{name}` must be {rule}, but is {value!r}"
        for name, holds, rule, value in rules
        if not holds
    ]
    if faults:
        raise ValueError("; ".join(faults))
