"""A server of our own for a measurement: started on free ports, watched, and stopped."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["DRAGOMAN_PROGRAM", "Server", "start_server"]

_SERVICE = "dragoman.v1.TranslationService"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_ROOT = Path(__file__).resolve().parent.parent
DRAGOMAN_PROGRAM = (str(_ROOT / "dragoman.py"), "serve")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs in a process of its own."""

    address: str
    metrics_url: str
    process_id: int
    start_seconds: float
    """From the start of the process to health saying SERVING."""

    def read_metrics(self) -> dict[str, float]:
        """Scrape the metrics: the sum over all labels for each sample name."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as response:
            text = response.read().decode("utf-8")
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def read_resident_bytes(self) -> int:
        """Resident memory of the process (Linux)."""
        for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the server is gone")


@contextlib.contextmanager
def start_server(
    bundles: Sequence[Path] = (),
    *,
    program: Sequence[str] = DRAGOMAN_PROGRAM,
    log_file: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start a server on the embedded models or these bundles; wait until it is warm; stop it at the end.

    Args:
        bundles: What it serves.
        program: `dragoman serve`, or another server that takes `--listen` and `--bundle`, as arguments of Python.
        log_file: Where its lines go; by default to where ours go.
        settings: Of the environment, such as `DRAGOMAN_ENGINE__SHORTLIST`.
    """
    address, metrics_address = (f"127.0.0.1:{port}" for port in _free_ports(2))
    command = [sys.executable, *program, "--listen", address]
    for bundle in bundles:
        command += ["--bundle", str(bundle.resolve())]
    environment = {
        "DRAGOMAN_LOG__LEVEL": "WARNING",
        **os.environ,
        **(settings or {}),
        "DRAGOMAN_METRICS__LISTEN": metrics_address,
    }
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        lines = None if log_file is None else stack.enter_context(log_file.open("wb"))
        process = stack.enter_context(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=lines, cwd=_ROOT
            )
        )
        try:
            _wait_until_serving(process, address)
            seconds = time.monotonic() - began
            yield Server(address, f"http://{metrics_address}/metrics", process.pid, seconds)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait_until_serving(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise SystemExit(f"the server ended with exit code {process.returncode}")
            with contextlib.suppress(grpc.RpcError):
                request = health_pb2.HealthCheckRequest(service=_SERVICE)
                status = stub.Check(request, timeout=1).status
                if status == health_pb2.HealthCheckResponse.SERVING:
                    return
            time.sleep(0.02)
    raise SystemExit(f"the server was not ready after {_START_SECONDS:.0f} s")
