"""Errors of training, evaluation and reference decoding: each message says what is wrong, where, and what is allowed.

ModelError
  TokenizerError     a SentencePiece model that is missing, broken or cannot be trained
  DataError          a data file that cannot be used; names the file and the line
  TrainConfigError   a training configuration with faults; lists all of them
  CheckpointError    a checkpoint that is missing, incomplete or of another model
  TrainingError      a run that cannot go on, such as a loss that is not a number
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "DataError",
    "ModelError",
    "TokenizerError",
    "TrainConfigError",
    "TrainingError",
]


class ModelError(Exception):
    """Base of all errors that `model` raises on purpose; the message is fit for a user."""


class TokenizerError(ModelError):
    """A SentencePiece model is missing or broken, or cannot be trained on the given text."""


class DataError(ModelError):
    """A data file cannot be read or its lines do not pair up."""


class TrainConfigError(ModelError):
    """The training configuration is wrong. One message lists all faults."""


class CheckpointError(ModelError):
    """A checkpoint is missing, incomplete, or belongs to another model."""


class TrainingError(ModelError):
    """Training cannot go on."""
