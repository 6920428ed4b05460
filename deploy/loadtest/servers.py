"""Servers in containers of the host's network, each on ports of the loopback, run as a pod would be."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from deploy.loadtest.clients import translate

__all__ = [
    "DOCKER",
    "HARDENED",
    "Server",
    "docker",
    "free_port",
    "running_server",
    "wait_until_serving",
]

DOCKER = shutil.which(os.environ.get("DOCKER", "docker")) or ""
"""The program, or "" where there is none."""

HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
"""What the chart asks for, in Docker's words."""


def docker(*words: str) -> str:
    """Run a command of Docker; its output.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run([DOCKER, *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_serving(address: str, seconds: float = 60) -> None:
    """Wait for a first answer.

    Raises:
        TimeoutError: None came.
    """
    deadline = time.monotonic() + seconds
    while translate(address, "Hello.")[0] is not grpc.StatusCode.OK:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody serves at {address}")
        time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Server:
    """A container that can be started again at the same address."""

    image: str
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    environ: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ("--memory", "768m")

    @property
    def name(self) -> str:
        """Of the container."""
        return f"dragoman-{self.port}"

    @property
    def address(self) -> str:
        """Of gRPC."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Run it and wait for its first answer."""
        settings = {
            "DRAGOMAN_SERVER__LISTEN": self.address,
            "DRAGOMAN_METRICS__LISTEN": f"127.0.0.1:{self.metrics_port}",
            **self.environ,
        }
        variables = [
            word for key, value in settings.items() for word in ("--env", f"{key}={value}")
        ]
        place = ("--network", "host", "--name", self.name)
        docker("run", "--detach", *HARDENED, *place, *self.options, *variables, self.image)
        wait_until_serving(self.address)

    def signal(self, name: str) -> None:
        """Send a signal: TERM, KILL."""
        docker("kill", "--signal", name, self.name)

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return int(docker("wait", self.name))

    def read_metric(self, name: str, label: str = "") -> float:
        """The sum of a metric's series, of those with a label such as `side="target"` only."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            lines = response.read().decode().splitlines()
        series = [line for line in lines if re.match(rf"{name}[ {{]", line) and label in line]
        return sum(float(line.split()[-1]) for line in series)

    def remove(self) -> None:
        """Remove the container, running or not."""
        docker("rm", "--force", self.name)


@contextmanager
def running_server(server: Server) -> Iterator[Server]:
    """Start a server; it is gone after the block."""
    try:
        server.start()
        yield server
    finally:
        server.remove()
