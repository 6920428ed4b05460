"""One JSON object a line, one line a call, and never a text of a user."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import logging
from collections.abc import Iterator

import pytest

from service.calls import Call, call_var, request_id_var
from service.config import LogConfig
from service.log import JsonFormatter, RequestLineFilter, configure_logging, log_loop_fault
from service.request_lines import RequestLines
from tests.fakes import FakeClock


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


@contextlib.contextmanager
def _call(request_id: str = "abc") -> Iterator[None]:
    tokens = request_id_var.set(request_id), call_var.set(Call(key=f"{request_id}#1"))
    try:
        yield
    finally:
        request_id_var.reset(tokens[0])
        call_var.reset(tokens[1])


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_call_has_one_line_whoever_writes_it_first(stream: io.StringIO) -> None:
    configure_logging(LogConfig(level="DEBUG"), stream)
    with _call():
        logging.getLogger("service.test").error("fault")
        logging.getLogger("grpc").warning("the same again")
        logging.getLogger("service.test").info("ended")
    logging.getLogger("service.test").info("no call")
    assert [line["message"] for line in _lines(stream)] == ["fault", "no call"]


def test_the_last_lines_of_a_server_tell_what_was_left_out_until_then(stream: io.StringIO) -> None:
    configure_logging(LogConfig(max_request_lines_per_second=2), stream)
    for level in (logging.INFO, logging.WARNING):
        for _ in range(5):
            with _call():
                logging.getLogger("service.test").log(level, "a call")
    logging.getLogger("service.app").info("Shutting down")
    logging.getLogger("service.app").info("Stopped")
    assert [line.get("left_out") for line in _lines(stream)[-2:]] == [6, None]


def test_under_load_lines_are_left_out_and_counted(stream: io.StringIO) -> None:
    clock = FakeClock()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RequestLineFilter(RequestLines(3, clock=clock)))
    logger = logging.getLogger("service.test.load")
    logger.setLevel("INFO")
    logger.propagate = False
    logger.addHandler(handler)

    def end(message: str, level: int = logging.INFO) -> None:
        with _call():
            logger.log(level, message, extra={"fields": {"code": "OK"}})

    for number in range(10):
        end(f"first {number}")
    end("fault", logging.WARNING)
    clock.now += 1.0
    end("second")
    end("third")
    logger.removeHandler(handler)
    lines = _lines(stream)
    assert [line["message"] for line in lines] == [
        "first 0", "first 1", "first 2", "fault", "second", "third",
    ]  # fmt: skip
    assert [line.get("left_out") for line in lines] == [None, None, None, None, 7, None]
    assert {line["code"] for line in lines} == {"OK"}


def test_no_lines_about_calls_may_be_asked_for(stream: io.StringIO) -> None:
    configure_logging(LogConfig(max_request_lines_per_second=0), stream)
    with _call():
        logging.getLogger("service.test").error("fault")
    logging.getLogger("service.test").error("not of a call")
    assert [line["message"] for line in _lines(stream)] == ["not of a call"]


def test_what_grpc_says_outside_of_calls_is_limited_too(stream: io.StringIO) -> None:
    configure_logging(LogConfig(max_request_lines_per_second=2), stream)
    for _ in range(5):
        logging.getLogger("grpc._cython.cygrpc").error("bad metadata")
        logging.getLogger("service.test").error("not of a call")
    messages = [line["message"] for line in _lines(stream)]
    assert messages.count("bad metadata") == 2
    assert messages.count("not of a call") == 5


def test_of_exceptions_of_libraries_the_message_is_not_written(stream: io.StringIO) -> None:
    configure_logging(LogConfig(), stream)
    try:
        raise ValueError("".join(["a user's", " text"]))
    except ValueError:
        logging.getLogger("grpc.aio").exception("it failed")
    (line,) = _lines(stream)
    assert "ValueError" in str(line["exception"])
    assert "a user's text" not in stream.getvalue()


def test_a_task_that_nobody_waits_for_fails_without_its_message(stream: io.StringIO) -> None:
    configure_logging(LogConfig(), stream)

    async def fail() -> None:
        raise ValueError("".join(["a user's", " text"]))

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(log_loop_fault)
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    asyncio.run(test())
    (line,) = _lines(stream)
    assert "never retrieved" in str(line["message"])
    assert "ValueError" in str(line["exception"])
    assert "a user's text" not in stream.getvalue()
