"""One replica of the rendered Deployment, run by Podman from the manifest itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from deploy.loadtest.clients import translate
from deploy.loadtest.servers import DOCKER, free_port, wait_until_serving
from tests.containers import IMAGE, require_image
from tests.manifests import load_rendered

pytestmark = [pytest.mark.slow, pytest.mark.image]

CONTAINER = "dragoman-pod-0-dragoman"


def _podman(*words: str) -> str:
    done = subprocess.run(["podman", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _load_image() -> str:
    """Give Podman the image that Docker has; its name there."""
    with subprocess.Popen([DOCKER, "save", IMAGE], stdout=subprocess.PIPE) as saved:
        loaded = subprocess.run(
            ["podman", "load", "--quiet"], stdin=saved.stdout, check=True, capture_output=True
        )
    return loaded.stdout.decode().strip().rpartition(" ")[2].split(",")[0]


def _manifest(image: str, port: int, metrics_port: int) -> str:
    """What the chart renders for development, on ports of the loopback: Podman would publish them everywhere."""
    kinds = {"Deployment", "ConfigMap"}  # Podman knows no others of ours
    documents = [each for each in load_rendered("dev") if each["kind"] in kinds]
    for document in documents:
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            container["image"] = image
            for declared, published in zip(container["ports"], (port, metrics_port), strict=True):
                declared |= {"hostPort": published, "hostIP": "127.0.0.1"}
    return yaml.safe_dump_all(documents)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_image()
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    port = free_port()
    path: Path = tmp_path_factory.mktemp("kube") / "dragoman.yaml"
    path.write_text(_manifest(_load_image(), port, free_port()), encoding="utf-8")
    try:
        _podman("play", "kube", str(path))
        wait_until_serving(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"
    finally:
        _podman("play", "kube", "--down", str(path))


def test_the_replica_translates(address: str) -> None:
    assert translate(address, "Good morning.") == (grpc.StatusCode.OK, "Bom dia.")


def test_the_manifest_is_what_runs(address: str) -> None:
    (running,) = json.loads(_podman("inspect", CONTAINER))
    (deployment,) = (each for each in load_rendered("dev") if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    memory = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) * 1024 * 1024

    assert running["HostConfig"]["ReadonlyRootfs"] is True
    assert running["HostConfig"]["Memory"] == memory
    assert running["Config"]["User"] == "10001:10001"
    assert running["EffectiveCaps"] in (None, [])


def test_threads_follow_the_cpu_limit(address: str) -> None:
    assert "int8 on cpu, 1 thread," in _podman("logs", CONTAINER)
