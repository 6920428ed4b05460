"""The built image: what it holds, how it runs, and that stopping it under load loses no request."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

import grpc
import pytest

from deploy.loadtest.clients import Load, translate
from deploy.loadtest.servers import HARDENED, Server, docker, running_server
from tests.containers import IMAGE, VERSION, require_image

pytestmark = [pytest.mark.slow, pytest.mark.image]

MEGABYTE = 1_000_000


@pytest.fixture(autouse=True)
def _image() -> None:
    require_image()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    require_image()
    with running_server(Server(IMAGE)) as running:
        yield running


def _python(code: str) -> str:
    """Run Python in the image, without a network."""
    words = ("--rm", "--network", "none", *HARDENED, "--entrypoint", "python", IMAGE, "-c", code)
    return docker("run", *words)


def test_the_labels_tell_what_it_is() -> None:
    labels = json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", IMAGE))
    names = {name.removeprefix("org.opencontainers.image.") for name in labels}

    assert {"title", "description", "licenses", "version", "revision", "source"} <= names
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 AND MPL-2.0"


def test_it_is_at_most_300_mb_above_its_base() -> None:
    history = docker("history", "--no-trunc", "--human=false", "--format", "{{json .}}", IMAGE)
    layers = [json.loads(line) for line in history.splitlines()]
    own = [int(layer["Size"]) for layer in layers if "/opt/dragoman" in layer["CreatedBy"]]

    assert own
    assert sum(own) <= 300 * MEGABYTE


def test_it_holds_neither_torch_nor_a_compiler() -> None:
    code = (
        "import importlib.util as u, shutil as s; "
        "print([m for m in ('torch', 'onnx', 'transformers') if u.find_spec(m)], "
        "[c for c in ('cc', 'gcc', 'g++', 'clang', 'ld', 'as', 'make', 'rustc') if s.which(c)])"
    )

    assert _python(code) == "[] []"


def test_the_bill_of_materials_names_what_is_installed() -> None:
    code = (
        "import importlib.metadata as m, json; "
        "b = json.load(open('/opt/dragoman/share/sbom.cdx.json')); "
        "print(json.dumps([b, {d.name.lower(): d.version for d in m.distributions()}]))"
    )
    bill, installed = json.loads(_python(code))
    listed = [*bill["components"], bill["metadata"]["component"]]

    assert bill["bomFormat"] == "CycloneDX"
    assert {each["name"].lower(): each["version"] for each in listed} == {
        name: version for name, version in installed.items() if name not in {"pip", "setuptools"}
    }


def test_it_translates_read_only_and_without_capabilities(server: Server) -> None:
    code, text = translate(server.address, "Good morning.")

    assert (code, text) == (grpc.StatusCode.OK, "Bom dia.")


def test_it_runs_as_nobody_of_the_host(server: Server) -> None:
    assert docker("exec", server.name, "id", "-u") == "10001"


def test_its_own_check_says_that_it_is_healthy(server: Server) -> None:
    deadline = time.monotonic() + 40
    while (status := _health(server)) == "starting" and time.monotonic() < deadline:
        time.sleep(0.5)

    assert status == "healthy"


def test_its_metrics_are_served(server: Server) -> None:
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        assert b"dragoman_model_info" in response.read()


def test_stopping_it_under_load_loses_no_request() -> None:
    with (
        running_server(Server(IMAGE)) as container,
        Load(container.address, num_clients=8, stop_at_failure=True) as load,
    ):
        time.sleep(2)
        stopped = time.monotonic()
        container.signal("TERM")
        code = container.wait()
        took = time.monotonic() - stopped

    accepted = [call for call in load.calls if call.began < stopped]
    assert code == 0, container.name
    assert took < 25
    assert {call.code for call in accepted} == {grpc.StatusCode.OK}
    assert [call for call in accepted if call.ended > stopped], "nothing ran when it was stopped"
    refused = {call.code for call in load.calls} - {grpc.StatusCode.OK}
    assert refused == {grpc.StatusCode.UNAVAILABLE}


def test_a_container_that_has_nothing_to_do_stops_at_once() -> None:
    with running_server(Server(IMAGE)) as container:
        began = time.monotonic()
        docker("stop", "--time", "20", container.name)

        assert time.monotonic() - began < 5
        assert container.wait() == 0


def _health(container: Server) -> str:
    return docker("inspect", "--format", "{{.State.Health.Status}}", container.name)
