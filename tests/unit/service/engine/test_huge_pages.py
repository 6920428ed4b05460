from __future__ import annotations

import sys

import numpy as np
import pytest

from service.engine import huge_pages
from service.engine.huge_pages import full_mappings, use_huge_pages

MB = 1024 * 1024


def mapping(start: int, end: int, *, filled: float = 1.0, huge: float = 0.0, **fields: str) -> str:
    rights, inode, name = (
        fields.get(key, default)
        for key, default in (("rights", "rw-p"), ("inode", "0"), ("name", ""))
    )
    size = (end - start) // 1024
    return (
        f"{start:x}-{end:x} {rights} 00000000 00:00 {inode}    {name}\n"
        f"Size: {size} kB\nRss:   {int(filled * size)} kB\nAnonHugePages:  {int(huge * size)} kB\n"
        "VmFlags: rd wr mr mw me ac\n"
    )


def test_whole_huge_pages_of_memory_in_use_are_found() -> None:
    text = mapping(3 * MB, 9 * MB) + mapping(20 * MB, 24 * MB, name="[heap]")
    assert [*full_mappings(text)] == [(4 * MB, 8 * MB), (20 * MB, 24 * MB)]


@pytest.mark.parametrize(
    "text",
    [
        mapping(4 * MB, 8 * MB, filled=0.5),
        mapping(4 * MB, 8 * MB, huge=1.0),
        mapping(4 * MB, 8 * MB, rights="r--p"),
        mapping(4 * MB, 8 * MB, inode="77", name="/usr/lib/libc.so.6"),
        mapping(4 * MB, 8 * MB, name="[stack]"),
        mapping(5 * MB, 7 * MB),
        "no mapping at all",
        "",
    ],
)
def test_all_other_memory_is_left_alone(text: str) -> None:
    assert [*full_mappings(text)] == []


@pytest.mark.skipif(sys.platform != "linux", reason="Linux names memory in /proc")
def test_memory_holds_what_it_held() -> None:
    numbers = np.arange(4 * MB)
    use_huge_pages()
    assert (numbers == np.arange(4 * MB)).all()


def test_a_system_without_smaps_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(huge_pages, "_SMAPS", huge_pages.Path(str(tmp_path)) / "none")
    use_huge_pages()
