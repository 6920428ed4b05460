"""Envoy and nginx, run with the configurations of `deploy/proxies/`: only addresses, ports and folders are put in."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

__all__ = ["envoy_config", "nginx_config", "running_envoy", "running_nginx"]

_CONFIGURATIONS = Path(__file__).resolve().parents[1] / "proxies"
_KUBERNETES_NAME = "dragoman-headless.dragoman.svc.cluster.local"


def envoy_config(ports: Mapping[int, Sequence[int]], admin_port: int) -> dict[str, Any]:
    """Point the configuration at servers of this machine.

    Args:
        ports: For each port to listen on, the ports of the servers behind it.
        admin_port: Of Envoy's own page.
    """
    text = (_CONFIGURATIONS / "envoy.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text)
    config["admin"]["address"] = _address(admin_port)
    resources = config["static_resources"]
    (listener,), (cluster,) = resources["listeners"], resources["clusters"]
    resources["listeners"] = [_listener(listener, port) for port in ports]
    resources["clusters"] = [_cluster(cluster, port, behind) for port, behind in ports.items()]
    return config


def nginx_config(port: int, servers: Sequence[int], directory: Path) -> str:
    """Point the configuration at servers of this machine, with its files in a directory."""
    text = (_CONFIGURATIONS / "nginx.conf").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if f"server {_KUBERNETES_NAME}" in line)
    lines = [line.replace(f"{_KUBERNETES_NAME}:50051", f"127.0.0.1:{each}") for each in servers]
    text = text.replace(line, "\n".join(lines))
    text = text.replace("listen 50051", f"listen 127.0.0.1:{port}")
    return text.replace("/tmp/", f"{directory}/")


@contextmanager
def running_envoy(config: Mapping[str, Any], directory: Path) -> Iterator[None]:
    """Run Envoy; its configuration and log are in the directory.

    Raises:
        FileNotFoundError: There is no envoy on the path.
    """
    path = directory / "envoy.yaml"
    path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    command = [_program("envoy"), "--config-path", str(path), "--concurrency", "1"]
    with _running([*command, "--log-level", "warn"], directory / "envoy.log"):
        yield


@contextmanager
def running_nginx(config: str, directory: Path) -> Iterator[None]:
    """Run nginx; its configuration and log are in the directory.

    Raises:
        FileNotFoundError: There is no nginx on the path.
    """
    path = directory / "nginx.conf"
    path.write_text(config, encoding="utf-8")
    command = [_program("nginx"), "-c", str(path), "-e", "stderr", "-g", "daemon off;"]
    with _running(command, directory / "nginx.log"):
        yield


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(
        command, stdout=output, stderr=output
    ) as process:  # fmt: skip
        try:
            yield
        finally:
            process.terminate()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed.")
    return found


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _listener(original: Mapping[str, Any], port: int) -> dict[str, Any]:
    listener = copy.deepcopy(dict(original))
    listener |= {"name": f"dragoman-{port}", "address": _address(port)}
    (chain,) = listener["filter_chains"]
    manager = chain["filters"][0]["typed_config"]
    (host,) = manager["route_config"]["virtual_hosts"]
    host["routes"][0]["route"]["cluster"] = f"dragoman-{port}"
    return listener


def _cluster(original: Mapping[str, Any], port: int, servers: Sequence[int]) -> dict[str, Any]:
    name = f"dragoman-{port}"
    endpoints = [{"endpoint": {"address": _address(server)}} for server in servers]
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}
    return {**copy.deepcopy(dict(original)), "name": name, "load_assignment": assignment}
