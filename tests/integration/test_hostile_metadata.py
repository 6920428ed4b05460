"""Metadata that no client library would send: the call is answered, and the log stays one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.server import DRAGOMAN_PROGRAM
from protos.dragoman.v1 import translation_pb2 as pb
from tests.raw_grpc import call_raw

ROOT = Path(__file__).resolve().parents[2]
METHOD = "/dragoman.v1.TranslationService/TranslateText"
MESSAGE = pb.TranslateTextRequest(
    contents=["Good morning."], source_language_code="en", target_language_code="pt"
).SerializeToString()


@dataclass(frozen=True, slots=True)
class _Served:
    address: str
    process: subprocess.Popen[str]

    def ask(self, name: str, value: bytes) -> bytes:
        return call_raw(self.address, METHOD, MESSAGE, {name: value})

    def stop(self) -> list[str]:
        """End the server; the lines of its log."""
        self.process.terminate()
        assert self.process.stderr is not None
        lines = self.process.stderr.read().splitlines()
        assert self.process.wait(20) == 0
        return lines


@pytest.fixture
def served(tmp_path: Path) -> Iterator[_Served]:
    settings = {
        "DRAGOMAN_SERVER__LISTEN": "127.0.0.1:0",
        "DRAGOMAN_METRICS__LISTEN": "",
        "DRAGOMAN_MODELS__BUNDLES": str(ROOT / "model" / "pretrained" / "en-pt"),
        "DRAGOMAN_TRACING__ENDPOINT": "http://127.0.0.1:1",
    }
    environ = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    with subprocess.Popen(
        [sys.executable, *DRAGOMAN_PROGRAM],
        env={**environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = (re.search(r"gRPC +(\S+)", line) for line in process.stdout)
            yield _Served(next(match[1] for match in found if match), process)
        finally:
            process.kill()


def test_a_call_is_answered_whatever_its_request_id_and_its_trace_are(served: _Served) -> None:
    for value in (
        b"plain", "caf\u00e9".encode(), "\u65e5\u672c".encode(), b"\xff\xfe", "\u202ex".encode(),
        b"two\nlines", b'\r\n{"level": "INFO"}', b"a\0b", b"x" * 4000, b" ", b"",
    ):  # fmt: skip
        for name in ("x-request-id", "traceparent", "tracestate"):
            assert b"Bom dia" in served.ask(name, value), (name, value)
    lines = served.stop()
    records = [json.loads(line) for line in lines]
    assert "plain" in {record.get("request_id") for record in records}
    assert all(record.get("request_id", "").isascii() for record in records)


def test_what_the_library_finds_wrong_neither_floods_the_log_nor_breaks_its_form(
    served: _Served,
) -> None:
    for _ in range(100):
        served.ask("traceparent", b"\xff")
    for _ in range(3):
        with contextlib.suppress(TimeoutError):  # the library may forget such a call
            served.ask("grpc-timeout", b"soon")
    records = [json.loads(line) for line in served.stop()]
    told = [record for record in records if "encoding" in record["message"]]
    assert 0 < len(told) < 100
    assert sum(record.get("left_out", 0) for record in records) > 100
