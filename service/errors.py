"""Every error of the service.

DragomanError
  InvalidRequestError          INVALID_ARGUMENT     400   a bad field, an option out of range
    UnsupportedLanguageError   INVALID_ARGUMENT     400   a language that no loaded model knows
    SourceTooLongError         INVALID_ARGUMENT     400   one text over the limit (status of that item)
  NotFoundError                NOT_FOUND            404   no such model, or no model for the pair
  OverloadedError              RESOURCE_EXHAUSTED   429   queue full at the door; carries `retry_after_seconds`
  DeadlineError                DEADLINE_EXCEEDED    504   the deadline passed or cannot be kept
  CancelledRequestError        CANCELLED            499   the client is gone
  DrainingError                UNAVAILABLE          503   loading or draining
  NotImplementedInVersionError UNIMPLEMENTED        501   in the interface, not built yet
  EngineStepError              INTERNAL             500   recoverable: this batch failed, others go on
  EngineDeadError              UNAVAILABLE          503   unrecoverable: health NOT_SERVING, the process exits
  ConfigError                  start-up only, exit code 2: one message that lists all faults

The table from type to gRPC code, HTTP status and metric label is in `service/interceptors.py`.
"""

from __future__ import annotations

__all__ = [
    "CancelledRequestError",
    "ConfigError",
    "DeadlineError",
    "DragomanError",
    "DrainingError",
    "EngineDeadError",
    "EngineStepError",
    "InvalidRequestError",
    "NotFoundError",
    "NotImplementedInVersionError",
    "OverloadedError",
    "SourceTooLongError",
    "UnsupportedLanguageError",
]


class DragomanError(Exception):
    """Base of all errors that the service raises on purpose. The message may be shown to a client."""


class InvalidRequestError(DragomanError):
    """A field of the request is wrong: "`beam_size` must be in [1, 16], but is 0."."""


class UnsupportedLanguageError(InvalidRequestError):
    """No loaded model knows the language."""


class SourceTooLongError(InvalidRequestError):
    """One text of the request is longer than the server takes."""


class NotFoundError(DragomanError):
    """No loaded model has that name or translates that pair."""


class OverloadedError(DragomanError):
    """The queue is full."""

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DeadlineError(DragomanError):
    """The deadline of the request passed, or the queue is too long to keep it."""


class CancelledRequestError(DragomanError):
    """The client cancelled the request or went away."""


class DrainingError(DragomanError):
    """The server is loading or shutting down and takes no new requests."""


class NotImplementedInVersionError(DragomanError):
    """An option that the interface has and this version does not build yet."""


class EngineStepError(DragomanError):
    """One engine step failed. Recoverable: the sequences of that step fail, others go on."""


class EngineDeadError(DragomanError):
    """An engine worker died. Unrecoverable: the process must exit."""


class ConfigError(DragomanError):
    """The configuration is wrong. Start-up only; one message that lists all faults."""
