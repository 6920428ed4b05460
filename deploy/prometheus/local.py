"""A Prometheus of our own on this machine, with the project's rules, for tests and for the pictures of the docs."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Prometheus", "Series", "find_prometheus", "start_prometheus"]

RULES = Path(__file__).parent / "rules"
_START_SECONDS = 60.0
_QUERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def has_number(self) -> bool:
        """Whether any value is a number: 0 / 0 is none."""
        return any(not math.isnan(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Where a Prometheus answers."""

    url: str

    def query(self, expression: str) -> list[Series]:
        """Ask for the values of now."""
        return self._series("query", query=expression)

    def query_range(
        self, expression: str, start: float, end: float, step_seconds: float
    ) -> list[Series]:
        """Ask for the values of a time."""
        return self._series(
            "query_range", query=expression, start=start, end=end, step=f"{step_seconds:g}"
        )

    def rules(self) -> list[dict[str, Any]]:
        """List the rules with their health."""
        groups: list[dict[str, Any]] = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _series(self, path: str, **parameters: object) -> list[Series]:
        answer = self._get(path, **parameters)
        if answer["resultType"] == "scalar":
            answer = {"result": [{"metric": {}, "value": answer["result"]}]}
        found = []
        for each in answer["result"]:
            points = each.get("values") or [each["value"]]
            times, values = zip(*points, strict=True)
            found.append(Series(each["metric"], times, tuple(float(value) for value in values)))
        return found

    def _get(self, path: str, **parameters: object) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_QUERY_SECONDS) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                reason = json.load(error).get("error", error.reason)
            raise ValueError(f"{parameters.get('query', path)}: {reason}") from error


def find_prometheus() -> str | None:
    """Give the path of the program, or None where it is not installed."""
    return shutil.which("prometheus")


@contextlib.contextmanager
def start_prometheus(targets: Sequence[str], *, scrape_seconds: int = 1) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes these addresses as job "dragoman" and evaluates the project's rules.

    Raises:
        RuntimeError: It is not installed, or does not become ready.
    """
    program = find_prometheus()
    if program is None:
        raise RuntimeError("prometheus is not installed (Debian: apt-get install prometheus)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="prometheus-") as directory:
        config = Path(directory, "prometheus.yml")
        config.write_text(json.dumps(_config(targets, scrape_seconds)), encoding="utf-8")
        command = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={directory}/tsdb",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
        with subprocess.Popen(command) as process:
            try:
                _wait_until_ready(process, f"http://{address}/-/ready")
                yield Prometheus(f"http://{address}")
            finally:
                process.terminate()


def _config(targets: Sequence[str], scrape_seconds: int) -> dict[str, Any]:
    """Write JSON: it is YAML, too."""
    interval = f"{scrape_seconds}s"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(path) for path in sorted(RULES.glob("*.yml"))],
        "scrape_configs": [
            {"job_name": "dragoman", "static_configs": [{"targets": list(targets)}]}
        ],
    }


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"prometheus ended with exit code {process.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"prometheus was not ready after {_START_SECONDS:.0f} s")
