"""Logging as JSON lines on standard error, set up once.

Request ids come from the call that runs. A call has one line at most, and under load only so many a second are written;
the next one tells how many were left out, at the latest the last of the server. Texts of users are never logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from service.calls import call_var, request_id_var
from service.config import LogConfig

__all__ = ["JsonFormatter", "RequestLineFilter", "configure_logging", "log_loop_fault"]

logger = logging.getLogger(__name__)

_OURS = ("service", "commands", "export", "model")
_ABOUT_CALLS = ("grpc",)
"""Libraries whose records are mostly about a call, but are written outside of it."""
_LIFE = "service.app"
"""Whose records are written by the event loop, the last of them when all calls have ended."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record, with the `fields` that it carries."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        request_id = request_id_var.get()
        if request_id:
            fields["request_id"] = request_id
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["exception"] = self._exception(record)
        return json.dumps(fields, ensure_ascii=False)

    def _exception(self, record: logging.LogRecord) -> str:
        """Of exceptions that libraries log only type and place are written: the message may hold a user's text."""
        assert record.exc_info is not None and not isinstance(record.exc_info, bool)
        if record.name.partition(".")[0] in _OURS:
            return self.formatException(record.exc_info)
        kind, _, where = record.exc_info
        return _type_and_place(kind, where)


class RequestLineFilter(logging.Filter):
    """Lets one line a call through, and so many a second of all calls together.

    What is a warning or worse has as many lines of its own, so that ordinary calls do not hide it. Records outside of
    calls pass, but for what gRPC finds wrong with one.
    """

    def __init__(
        self, max_lines_per_second: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the limit; 0 lets nothing through."""
        super().__init__()
        self._budgets = {
            is_grave: _LineBudget(max_lines_per_second, clock) for is_grave in (False, True)
        }

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide on a record, and add `left_out` to one that passes. Calls live on the event loop: there is no race."""
        call = call_var.get(None)
        if call is not None and call.is_logged:
            return False
        if call is not None:
            call.is_logged = True
        elif record.name == _LIFE:
            _tell_left_out(record, *self._budgets.values())
            return True
        elif record.name.partition(".")[0] not in _ABOUT_CALLS:
            return True
        budget = self._budgets[record.levelno >= logging.WARNING]
        if not budget.take():
            return False
        _tell_left_out(record, budget)
        return True


def _tell_left_out(record: logging.LogRecord, *budgets: _LineBudget) -> None:
    """Say in a record how many lines were left out before it."""
    left_out = sum(budget.num_left_out for budget in budgets)
    if left_out:
        record.fields = {**getattr(record, "fields", {}), "left_out": left_out}
        for budget in budgets:
            budget.num_left_out = 0


class _LineBudget:
    """So many lines in each second."""

    def __init__(self, max_lines: int, clock: Callable[[], float]) -> None:
        self._max_lines = max_lines
        self._clock = clock
        self._began = clock()
        self._num_lines = 0
        self.num_left_out = 0

    def take(self) -> bool:
        """Take a line; False when there is none left, and then it is counted as left out."""
        now = self._clock()
        if now - self._began >= 1.0:
            self._began, self._num_lines = now, 0
        if self._num_lines >= self._max_lines:
            self.num_left_out += 1
            return False
        self._num_lines += 1
        return True


def configure_logging(config: LogConfig, stream: TextIO | None = None) -> None:
    """Send the records of this process to `stream`, by default standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RequestLineFilter(config.max_request_lines_per_second))
    logging.basicConfig(level=config.level, handlers=[handler], force=True)


def log_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle what the event loop has no other place for. Its own handler would log the exception, text and all."""
    error = context.get("exception")
    where = "" if error is None else _type_and_place(type(error), error.__traceback__)
    logger.error("%s", context["message"], extra={"fields": {"exception": where}})


def _type_and_place(kind: type[BaseException] | None, where: Any) -> str:
    name = "" if kind is None else kind.__qualname__
    return "".join([*traceback.format_tb(where), name])
