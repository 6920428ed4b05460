"""The one table from errors to codes covers every error, and hides what is ours."""

from __future__ import annotations

import asyncio
import inspect

import grpc
import pytest
from google.rpc import code_pb2

from service import errors
from service.errors import (
    EngineStepError,
    OverloadedError,
    SourceTooLongError,
    UnsupportedLanguageError,
)
from service.interceptors import (
    ERROR_TABLE,
    as_told,
    describe_error,
    entry_of,
    status_of,
    value_or_error,
)
from service.metrics import REJECTIONS

START_UP_ONLY = {errors.ConfigError}


def _error_types() -> set[type[errors.DragomanError]]:
    types = {each for _, each in inspect.getmembers(errors, inspect.isclass)}
    return types - START_UP_ONLY - {errors.DragomanError}


@pytest.mark.parametrize("kind", sorted(_error_types(), key=lambda kind: kind.__name__))
def test_every_error_has_an_entry_with_a_label_that_metrics_know(
    kind: type[errors.DragomanError],
) -> None:
    entry = entry_of(kind("message"))
    assert entry in ERROR_TABLE.values()
    assert entry.grpc_code is not grpc.StatusCode.UNKNOWN
    assert entry.rejection is None or entry.rejection in REJECTIONS


def test_a_subclass_takes_the_entry_of_its_nearest_class() -> None:
    expected = ERROR_TABLE[errors.InvalidRequestError]
    assert entry_of(UnsupportedLanguageError("x")) is expected
    assert entry_of(SourceTooLongError("x")) is expected


def test_anything_else_is_internal_and_its_message_stays_here() -> None:
    assert entry_of(KeyError("x")).grpc_code is grpc.StatusCode.INTERNAL
    assert "secret" not in describe_error(KeyError("secret"))
    told = as_told(KeyError("secret"))
    assert isinstance(told, EngineStepError)
    assert "secret" not in str(told)


def test_an_error_of_the_service_is_told_as_it_is() -> None:
    error = errors.NotFoundError("no such model")
    assert as_told(error) is error
    assert (status_of(error).code, status_of(error).message) == (
        code_pb2.NOT_FOUND,
        "no such model",
    )


def test_a_long_message_is_cut() -> None:
    assert len(status_of(errors.NotFoundError("x" * 5000)).message) == 1001


def test_overload_says_when_to_try_again() -> None:
    assert len(status_of(OverloadedError("full", retry_after_seconds=1.0)).details) == 1


def test_what_is_raised_becomes_a_value_but_a_cancellation_does_not() -> None:
    async def fail(error: BaseException) -> None:
        raise error

    async def test() -> None:
        error = ValueError("x")
        assert await value_or_error(fail(error)) is error
        assert await value_or_error(asyncio.sleep(0, "fine")) == "fine"
        with pytest.raises(asyncio.CancelledError):
            await value_or_error(fail(asyncio.CancelledError()))

    asyncio.run(test())
