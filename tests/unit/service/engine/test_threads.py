from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.engine.threads import available_cores


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == 8


def test_quota_of_cgroup_v2(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert available_cores(tmp_path) == 2


def test_a_quota_of_a_parent_group_counts(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/pod/container\n")
    put(tmp_path, "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
    put(tmp_path, "sys/fs/cgroup/pod/cpu.max", "300000 100000\n")
    assert available_cores(tmp_path) == 3


def test_no_quota_of_cgroup_v2(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert available_cores(tmp_path) == 8


def test_quota_of_cgroup_v1(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "3:memory:/\n1:cpu,cpuacct:/docker/abc\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert available_cores(tmp_path) == 4


def test_no_quota_of_cgroup_v1(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "1:cpu:/\n")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert available_cores(tmp_path) == 8


def test_part_of_a_core_is_one(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert available_cores(tmp_path) == 1


def test_a_path_outside_the_namespace_is_the_top(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/../../elsewhere\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert available_cores(tmp_path) == 2
