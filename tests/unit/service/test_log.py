"""One JSON object a line."""

from __future__ import annotations

import io
import json
import logging

import pytest

from service.config import LogConfig
from service.interceptors import request_id_var
from service.log import configure_logging


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def _restore_logging() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_one_line_with_its_request(stream: io.StringIO) -> None:
    configure_logging(LogConfig(level="DEBUG"), stream)
    token = request_id_var.set("abc")
    logging.getLogger("service.test").debug("two\nlines %s", "é")
    request_id_var.reset(token)
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields["message"] == "two\nlines é"
    assert (fields["level"], fields["logger"]) == ("DEBUG", "service.test")
    assert fields["request_id"] == "abc"
    assert fields["time"].endswith("+00:00")


def test_outside_of_calls_there_is_no_request(stream: io.StringIO) -> None:
    configure_logging(LogConfig(), stream)
    logging.getLogger("service.test").info("hello")
    assert "request_id" not in json.loads(stream.getvalue())


def test_records_below_the_level_are_left_out(stream: io.StringIO) -> None:
    configure_logging(LogConfig(level="WARNING"), stream)
    logging.getLogger("service.test").info("hello")
    assert stream.getvalue() == ""


def test_an_exception_stays_on_its_line(stream: io.StringIO) -> None:
    configure_logging(LogConfig(), stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("service.test").exception("it failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: broken" in json.loads(line)["exception"]
