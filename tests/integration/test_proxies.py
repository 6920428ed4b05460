"""Two servers behind Envoy, behind nginx, and before clients that balance themselves: calls are dealt out, and a server
may go.
"""

from __future__ import annotations

import queue
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import grpc
import pytest

from deploy.loadtest.clients import Load
from deploy.loadtest.proxies import envoy_config, nginx_config, running_envoy, running_nginx
from deploy.loadtest.servers import free_port, wait_until_serving
from protos.dragoman.v1 import translation_pb2 as pb
from protos.dragoman.v1 import translation_pb2_grpc
from tests.fake_app import fake_server
from tests.manifests import DEPLOY

pytestmark = pytest.mark.slow

Backends = list[tuple["subprocess.Popen[str]", str, str]]


@pytest.fixture
def backends() -> Iterator[Backends]:
    with ExitStack() as stack:
        yield [stack.enter_context(fake_server(0.002)) for _ in range(2)]


@pytest.fixture(params=["envoy", "nginx"])
def proxy(
    request: pytest.FixtureRequest, backends: Backends, tmp_path: Path
) -> Iterator[tuple[str, str]]:
    """The name of a proxy, and where it listens."""
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    port = free_port()
    servers = [int(address.rpartition(":")[2]) for _, address, _ in backends]
    with _running(request.param, port, servers, tmp_path):
        wait_until_serving(f"127.0.0.1:{port}")
        yield request.param, f"127.0.0.1:{port}"


def _running(
    name: str, port: int, servers: list[int], directory: Path
) -> AbstractContextManager[None]:
    if name == "envoy":
        return running_envoy(envoy_config({port: servers}, free_port()), directory)
    return running_nginx(nginx_config(port, servers, directory), directory)


def _answered(metrics_url: str) -> float:
    with urllib.request.urlopen(metrics_url, timeout=10) as response:
        lines = response.read().decode().splitlines()
    method = 'grpc_method="TranslateText"'
    started = [
        line for line in lines if line.startswith("grpc_server_started_total") and method in line
    ]
    return sum(float(line.split()[-1]) for line in started)


@pytest.mark.skipif(shutil.which("envoy") is None, reason="envoy is not installed")
def test_envoy_takes_the_file_as_it_is() -> None:
    path = DEPLOY / "proxies" / "envoy.yaml"
    done = subprocess.run(
        ["envoy", "--mode", "validate", "-c", str(path)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr


def test_one_connection_reaches_both_servers(proxy: tuple[str, str], backends: Backends) -> None:
    with Load(proxy[1], num_clients=1, texts=["one two"]) as load:
        time.sleep(1)

    counts = [_answered(metrics) for _, _, metrics in backends]
    assert {call.code for call in load.calls} == {grpc.StatusCode.OK}
    assert min(counts) >= 0.3 * sum(counts)


def test_a_stream_is_answered_while_it_is_open(proxy: tuple[str, str]) -> None:
    sent: queue.SimpleQueue[pb.StreamTranslateTextRequest | None] = queue.SimpleQueue()
    with grpc.insecure_channel(proxy[1]) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        answers = stub.StreamTranslateText(iter(sent.get, None), timeout=20)
        for number in range(3):
            sent.put(
                pb.StreamTranslateTextRequest(
                    id=str(number),
                    content="one two",
                    source_language_code="en",
                    target_language_code="pt",
                )
            )
            answer = next(answers)
            assert (answer.id, answer.translation.translated_text) == (str(number), "ONE TWO")
        sent.put(None)
        assert list(answers) == []


def test_a_server_that_stops_costs_no_call(proxy: tuple[str, str], backends: Backends) -> None:
    name, address = proxy
    if name == "nginx":
        pytest.skip("nginx passes on the UNAVAILABLE of a draining server: clients try again")
    with Load(address, num_clients=4, texts=["one two"]) as load:
        time.sleep(1)
        backends[0][0].send_signal(signal.SIGTERM)
        assert backends[0][0].wait(30) == 0
        time.sleep(1)

    assert {call.code for call in load.calls} == {grpc.StatusCode.OK}


def test_only_calls_that_a_killed_server_had_can_fail(
    proxy: tuple[str, str], backends: Backends
) -> None:
    with Load(proxy[1], num_clients=4, texts=["one two"]) as load:
        time.sleep(1)
        killed = time.monotonic()
        backends[0][0].kill()
        time.sleep(2)

    failed = [call for call in load.calls if call.code is not grpc.StatusCode.OK]
    assert [call for call in load.calls if call.began > killed + 1]
    if proxy[0] == "envoy":
        assert failed == []  # Envoy asks another server
    assert all(call.began < killed + 0.2 for call in failed)  # a death is not noticed at once
    assert {call.code for call in failed} <= {grpc.StatusCode.UNAVAILABLE}


def test_clients_balance_themselves_and_lose_no_call(backends: Backends) -> None:
    target = "ipv4:" + ",".join(address for _, address, _ in backends)
    config = (DEPLOY / "proxies" / "service-config.json").read_text(encoding="utf-8")
    with Load(target, num_clients=4, texts=["one two"], service_config=config) as load:
        time.sleep(1)
        counts = [_answered(metrics) for _, _, metrics in backends]
        backends[0][0].send_signal(signal.SIGTERM)
        assert backends[0][0].wait(30) == 0
        time.sleep(1)

    assert min(counts) >= 0.3 * sum(counts)
    assert {call.code for call in load.calls} == {grpc.StatusCode.OK}
