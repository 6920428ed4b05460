"""Start-up: weights in huge pages.

A decoder step reads all weights once, and with pages of 4 KB the processor has to look up where each lies. Linux can
put memory that is in use into pages of 2 MB (madvise(2), MADV_COLLAPSE, since 6.1). Nothing else changes; where it
cannot, nothing happens. What it brings: `benchmarks/RESULTS.md`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["full_mappings", "use_huge_pages"]

_PAGE_BYTES = 2 * 1024 * 1024
_MADV_COLLAPSE = 25
_LEAST_FILLED = 0.9
"""Share of a mapping that must be in use: what is not would be filled up."""

_SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")
_SIZE = re.compile(r"(Rss|AnonHugePages):\s+(\d+) kB")


def use_huge_pages() -> None:
    """Move what this process has filled by now into huge pages: a moment's work for weights that were just loaded."""
    try:
        madvise = ctypes.CDLL(None).madvise
        mappings = [*full_mappings(_SMAPS.read_text(encoding="utf-8"))]
    except (OSError, AttributeError, ValueError):  # another system, or a /proc that is not there
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in mappings:
        madvise(start, end - start, _MADV_COLLAPSE)  # a refusal leaves everything as it is


def full_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Give anonymous memory that is in use and not in huge pages yet, cut to whole huge pages.

    Args:
        smaps: Text of /proc/PID/smaps (proc(5)).

    Returns:
        First address of each part, and the one after its last.
    """
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", smaps):
        head = _MAPPING.match(mapping)
        if head is None:
            continue
        start, end, rights, inode, name = head.groups()
        if inode != "0" or name not in {"", "[heap]"} or not rights.startswith("rw"):
            continue
        sizes = {what: int(number) * 1024 for what, number in _SIZE.findall(mapping)}
        first, last = int(start, 16), int(end, 16)
        is_full = sizes.get("Rss", 0) >= _LEAST_FILLED * (last - first)
        is_huge = sizes.get("AnonHugePages", 0) >= _LEAST_FILLED * (last - first)
        first, last = -(-first // _PAGE_BYTES) * _PAGE_BYTES, last // _PAGE_BYTES * _PAGE_BYTES
        if is_full and not is_huge and first < last:
            yield first, last
