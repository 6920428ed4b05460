"""Cut parallel text into training and held-out pairs, the same way each time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from model.errors import DataError
from model.parallel_text import ParallelFile, read_pairs


def write_split(
    files: Iterable[ParallelFile], train: Path, held_out: Path, one_in: int
) -> tuple[int, int]:
    """Write two TSV files; a source decides by its hash where its pairs go, so no source is in both.

    Args:
        files: Parallel text.
        train: Where the pairs to learn from go.
        held_out: Where the others go.
        one_in: How many sources there are for each that is held out.

    Returns:
        The number of pairs in each.

    Raises:
        DataError: A line of `files` breaks a rule of `read_pairs`, or one of the two would be empty.
    """
    paths = (train, held_out)
    partial = [path.with_name(f"{path.name}.partial") for path in paths]
    counts = [0, 0]
    streams = [path.open("w", encoding="utf-8", newline="\n") for path in partial]
    try:
        for source, target in read_pairs(files):
            digest = hashlib.sha256(source.casefold().encode()).digest()
            side = int(int.from_bytes(digest[:8], "big") % one_in == 0)
            streams[side].write(f"{source}\t{target}\n")
            counts[side] += 1
    finally:
        for stream in streams:
            stream.close()
    if not all(counts):
        raise DataError(
            f"{counts[0]} pairs are left to train on and {counts[1]} held out: more text is needed."
        )
    for path, complete in zip(partial, paths, strict=True):
        path.replace(complete)
    return counts[0], counts[1]
