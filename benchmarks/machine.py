"""What a number was measured on: processor, memory, and the versions of everything that computes."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from service.engine.threads import available_cores

__all__ = ["describe_machine", "versions"]

_PACKAGES = ("ctranslate2", "numpy", "onnxruntime", "torch", "transformers")
_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_int8",
    "asimddp",
    "i8mm",
)
_ROOT = Path(__file__).resolve().parent.parent


def describe_machine() -> dict[str, Any]:
    """Facts about this machine, as far as Linux tells them."""
    info = _read(Path("/proc/cpuinfo"))
    flags = set(info.get("flags", info.get("Features", "")).split())
    load = os.getloadavg()[0]
    return {
        "processor": info.get("model name", platform.processor() or platform.machine()),
        "cores": available_cores(),
        "vector instructions": [flag for flag in _FLAGS if flag in flags],
        "memory": _read(Path("/proc/meminfo")).get("MemTotal", "unknown"),
        "system": platform.platform(),
        "load average before": load,
    }


def versions() -> dict[str, str]:
    """Versions of what is compared, and the commit of this checkout."""
    found = {"python": platform.python_version(), "dragoman commit": _commit()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _read(path: Path) -> dict[str, str]:
    """The first value of every key of a file of "key: value" lines."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return found


def _commit() -> str:
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
