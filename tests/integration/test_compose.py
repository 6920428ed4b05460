"""`docker compose up` for real: the built image and a Prometheus that scrapes it and evaluates the rules.

Grafana's container is left out. PROMETHEUS_IMAGE names another image than the compose file's.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from deploy.loadtest.clients import SENTENCES, translate
from deploy.loadtest.servers import DOCKER, free_port
from deploy.prometheus.local import Prometheus
from tests.containers import REPOSITORY, require_image

pytestmark = [pytest.mark.slow, pytest.mark.image]

PROJECT = "dragoman-test"
SCRAPE_SECONDS = 90.0


def _compose(*words: str, ports: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [
        DOCKER,
        "compose",
        "--project-name",
        PROJECT,
        "--file",
        "deploy/compose.yaml",
        *words,
    ]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **(ports or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, Prometheus]]:
    """Where the server and Prometheus answer."""
    require_image()
    if _compose("version").returncode:
        pytest.skip("Docker has no compose")
    ports = {"GRPC_PORT": str(free_port()), "PROMETHEUS_PORT": str(free_port())}
    done = _compose("up", "--detach", "--no-build", "dragoman", "prometheus", ports=ports)
    try:
        assert done.returncode == 0, done.stderr
        yield (
            f"127.0.0.1:{ports['GRPC_PORT']}",
            Prometheus(f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}"),
        )
    finally:
        _compose("down", "--volumes", "--timeout", "30", ports=ports)


def _wait_for(prometheus: Prometheus, expression: str) -> float:
    """Wait until an expression has a value that is not zero."""
    deadline = time.monotonic() + SCRAPE_SECONDS
    while time.monotonic() < deadline:
        try:
            found = [series.values[-1] for series in prometheus.query(expression)]
        except OSError:  # it does not listen yet
            found = []
        if any(value > 0 for value in found):
            return max(found)
        time.sleep(1)
    raise AssertionError(f"{expression} has no value after {SCRAPE_SECONDS:.0f} s")


def test_prometheus_finds_the_server_and_records_what_it_does(
    addresses: tuple[str, Prometheus],
) -> None:
    address, prometheus = addresses
    assert _wait_for(prometheus, 'up{job="dragoman"}') == 1
    for _ in range(3):
        assert translate(address, SENTENCES[0])[1]
        time.sleep(6)
    assert _wait_for(prometheus, "job:dragoman_calls:rate5m") > 0
    assert {rule["health"] for rule in prometheus.rules()} == {"ok"}
