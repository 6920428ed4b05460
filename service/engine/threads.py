"""Start-up: how many engine threads this process may keep busy.

The count comes from what the process may use, not from what the host has: its affinity and its cgroup's quota, version
1 or 2. A container with two of sixty-four cores gets two.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_cores"]


def available_cores(root: Path = Path("/")) -> int:
    """Cores that this process may use, at least 1; a quota of 1.5 cores counts as 1.

    Args:
        root: Where `proc` and `sys` are.
    """
    cores = _affinity()
    quota = _cgroup_v2_quota(root) or _cgroup_v1_quota(root)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Only Linux has affinity.
        return os.cpu_count() or 1


def _cgroup_v2_quota(root: Path) -> float | None:
    """The smallest quota of this cgroup and of those above it, in cores."""
    relative = _cgroup_path(root, "")
    if relative is None:
        return None
    mount = root / "sys/fs/cgroup"
    directory = mount / ("" if ".." in relative else relative.lstrip("/"))
    quotas: list[float] = []
    for level in (directory, *directory.parents):
        if not level.is_relative_to(mount):
            break
        fields = _read(level / "cpu.max").split()
        if len(fields) == len(("quota", "period")) and fields[0] != "max":
            quotas.append(float(fields[0]) / float(fields[1]))
    return min(quotas, default=None)


def _cgroup_v1_quota(root: Path) -> float | None:
    relative = _cgroup_path(root, "cpu")
    for controller in ("cpu", "cpu,cpuacct"):
        mount = root / "sys/fs/cgroup" / controller
        # Inside a container the cgroup is mounted at the top, whatever its path on the host.
        for directory in (mount / (relative or "").lstrip("/"), mount):
            quota = _read(directory / "cpu.cfs_quota_us").strip()
            period = _read(directory / "cpu.cfs_period_us").strip()
            if quota and period and int(quota) > 0:
                return int(quota) / int(period)
    return None


def _cgroup_path(root: Path, controller: str) -> str | None:
    """Path of this process in the hierarchy of a controller; version 2 has one, whose name is empty."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
