"""Logging as JSON lines on standard error, set up once.

Request ids come from the call that runs. A call has one line at most, and under load only so many a second are written;
the next one tells how many were left out, at the latest the last of the server. Texts of users are never logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from service.calls import call_var, request_id_var
from service.config import LogConfig
from service.request_lines import RequestLines

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

    Records outside of calls pass, but for what gRPC finds wrong with one.
    """

    def __init__(self, lines: RequestLines) -> None:
        """Take how many lines there may be."""
        super().__init__()
        self._lines = lines

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide on a record, and add `left_out` to one that passes."""
        call = call_var.get(None)
        if call is not None and call.is_logged:
            return False
        if call is not None:
            call.is_logged = True
        elif record.name == _LIFE:
            _tell_left_out(record, self._lines.pop_left_out())
            return True
        elif record.name.partition(".")[0] not in _ABOUT_CALLS:
            return True
        left_out = self._lines.take(record.levelno)
        if left_out is None:
            return False
        _tell_left_out(record, left_out)
        return True


def _tell_left_out(record: logging.LogRecord, left_out: int) -> None:
    """Say in a record how many lines were left out before it."""
    if left_out:
        record.fields = {**getattr(record, "fields", {}), "left_out": left_out}


def configure_logging(config: LogConfig, stream: TextIO | None = None) -> RequestLines:
    """Send the records of this process to `stream`, by default standard error.

    Returns:
        What those who write about calls may ask before they do.
    """
    lines = RequestLines(config.max_request_lines_per_second)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RequestLineFilter(lines))
    logging.basicConfig(level=config.level, handlers=[handler], force=True)
    return lines


def log_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle what the event loop has no other place for. Its own handler would log the exception, text and all."""
    error = context.get("exception")
    where = "" if error is None else _type_and_place(type(error), error.__traceback__)
    logger.error("%s", context["message"], extra={"fields": {"exception": where}})


def _type_and_place(kind: type[BaseException] | None, where: Any) -> str:
    name = "" if kind is None else kind.__qualname__
    return "".join([*traceback.format_tb(where), name])
