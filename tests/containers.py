"""The image of `make image`, run by Docker for tests; and clients that count what becomes of their calls."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from protos.dragoman.v1 import translation_pb2 as pb
from protos.dragoman.v1 import translation_pb2_grpc

REPOSITORY = Path(__file__).parents[1]
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "version"
]
IMAGE = os.environ.get("DRAGOMAN_IMAGE", f"dragoman:{VERSION}")
ENGINE = shutil.which(os.environ.get("DOCKER", "docker")) or ""
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
SENTENCES = (
    "The committee decided on Tuesday that the budget would not be approved.",
    "Where is the nearest railway station?",
    "She has lived in Lisbon since 1998, and her brother moved there last year.",
)


def docker(*words: str, check: bool = True) -> str:
    """Run a command of Docker; its output.

    Raises:
        AssertionError: It failed, and `check` is set.
    """
    done = subprocess.run([ENGINE, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip()


def require_image() -> None:
    """Skip the test where there is no Docker or no image."""
    if not ENGINE:
        pytest.skip("Docker is not installed")
    done = subprocess.run([ENGINE, "image", "inspect", IMAGE], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"there is no image {IMAGE}: run `make image`, or name one in DRAGOMAN_IMAGE")


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Container:
    """A server in a container of the host's network, on ports of the loopback."""

    name: str
    port: int
    metrics_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status(self) -> str:
        return docker("inspect", "--format", "{{.State.Status}}", self.name)

    def exit_code(self) -> int:
        return int(docker("wait", self.name))

    def logs(self) -> str:
        done = subprocess.run(
            [ENGINE, "logs", self.name], check=False, capture_output=True, text=True
        )
        return done.stdout + done.stderr


@contextmanager
def running_server(*options: str, **environ: str) -> Iterator[Container]:
    """Start the image as a pod would: read-only, without capabilities. It ends with the block."""
    port, metrics_port = free_port(), free_port()
    container = Container(f"dragoman-test-{port}", port, metrics_port)
    settings = {
        "DRAGOMAN_SERVER__LISTEN": container.address,
        "DRAGOMAN_METRICS__LISTEN": f"127.0.0.1:{metrics_port}",
        **environ,
    }
    variables = [word for key, value in settings.items() for word in ("--env", f"{key}={value}")]
    limits = ("--memory", "768m", "--network", "host", "--name", container.name)
    docker("run", "--detach", *HARDENED, *limits, *variables, *options, IMAGE)
    try:
        wait_until_serving(container.address)
        yield container
    finally:
        docker("rm", "--force", container.name)


def wait_until_serving(address: str, seconds: float = 60) -> None:
    """Wait for a first answer.

    Raises:
        AssertionError: None came.
    """
    deadline = time.monotonic() + seconds
    while translate(address, SENTENCES[1])[0] is not grpc.StatusCode.OK:
        assert time.monotonic() < deadline, f"nobody serves at {address}"
        time.sleep(0.2)


def translate(address: str, text: str) -> tuple[grpc.StatusCode, str]:
    """Make one call over a new connection; the status and the translation."""
    with grpc.insecure_channel(address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        try:
            response = stub.TranslateText(make_request(text), timeout=20)
        except grpc.RpcError as error:
            return error.code(), ""
        return grpc.StatusCode.OK, response.translations[0].translated_text


def make_request(*texts: str) -> pb.TranslateTextRequest:
    return pb.TranslateTextRequest(
        contents=texts, source_language_code="en", target_language_code="pt"
    )


@dataclass(frozen=True, slots=True)
class Call:
    """What became of a call; times of the monotonic clock."""

    began: float
    ended: float
    code: grpc.StatusCode


@dataclass(slots=True)
class Load:
    """Clients that call one after the other, each until its first failure or the end."""

    address: str
    num_clients: int = 8
    calls: list[Call] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _clients: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._clients = [
            threading.Thread(target=self._call_on, args=(number,))
            for number in range(self.num_clients)
        ]
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for client in self._clients:
            client.join(60)

    def _call_on(self, number: int) -> None:
        with grpc.insecure_channel(self.address) as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            request = make_request(*SENTENCES[: 1 + number % len(SENTENCES)])
            code = grpc.StatusCode.OK
            while code is grpc.StatusCode.OK and not self._over.is_set():
                began = time.monotonic()
                try:
                    stub.TranslateText(request, timeout=30)
                except grpc.RpcError as error:
                    code = error.code()
                self.calls.append(Call(began, time.monotonic(), code))
