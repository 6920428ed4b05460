"""Distillation pairs: tokenized once, then served as batches of similar length.

Pieces of all sentences lie in one flat array with offsets, which loads by memory map and costs no Python object a pair:
sentence i is `ids[starts[i] : starts[i + 1]]`, its EOS included.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint import replace_directory
from model.errors import DataError
from model.masks import length_mask
from model.overlap import TestText
from model.parallel_text import read_lines
from model.recipes.token_origin import (
    ORIGIN_FILE,
    describe_origin,
    require_origin,
    write_origin,
)

logger = logging.getLogger(__name__)

_CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class PairFiles:
    """Distillation files of one kind: `.tsv.xz`, two columns, in random order."""

    pattern: str
    """Glob pattern of the files in the data folder."""

    reverse: bool = False
    """Whether the first column is the target: pairs made for the opposite direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLimits:
    """Which pairs of the files are taken."""

    max_pairs: int
    """How many, evenly from all files."""

    max_tokens: int
    """Pairs with more tokens than this on a side are left out, EOS not counted."""

    test_text: TestText | None = None
    """Pairs that meet it on either side are left out."""

    def describe(self) -> dict[str, int | str | None]:
        """Give plain values that differ whenever other pairs are taken."""
        return {
            "max_pairs": self.max_pairs,
            "max_tokens": self.max_tokens,
            "test_text": self.test_text.digest() if self.test_text else None,
        }

    def take(self, pairs: Iterable[tuple[str, str]], count: int) -> Iterator[tuple[str, str]]:
        """Give the first `count` pairs that are no test text."""
        test_text = self.test_text
        if test_text is not None:
            pairs = (pair for pair in pairs if not any(map(test_text.meets, pair)))
        return islice(pairs, count)


@dataclass(frozen=True, slots=True)
class TokenStore:
    """Token ids of many sentences in one array."""

    ids: NDArray[np.uint16]
    """All sentences one after the other."""

    starts: NDArray[np.int64]
    """Where each begins, and one more entry: where the last ends."""

    def lengths(self) -> NDArray[np.int64]:
        """Give the number of tokens of each sentence, EOS included."""
        return np.diff(self.starts)

    def padded(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Give some sentences as a padded batch.

        Returns:
            Token ids (B, S) int64, filled up with 0, and the mask (B, S), True at real tokens.
        """
        lengths = self.starts[rows + 1] - self.starts[rows]
        ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int64)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            ids[place, :length] = self.ids[self.starts[row] : self.starts[row] + length]
        mask = length_mask(torch.from_numpy(lengths), ids.shape[1])
        return torch.from_numpy(ids), mask


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Pairs of similar length, padded."""

    source_ids: Tensor
    """Shape (B, S)."""

    source_mask: Tensor
    """True at real tokens. Shape (B, S)."""

    target_ids: Tensor
    """Shape (B, T)."""

    target_mask: Tensor
    """True at real tokens. Shape (B, T)."""

    def to(self, device: torch.device) -> PairBatch:
        """Give the same batch on a device."""
        tensors = (self.source_ids, self.source_mask, self.target_ids, self.target_mask)
        return PairBatch(*(tensor.to(device, non_blocking=True) for tensor in tensors))


@dataclass(frozen=True, slots=True)
class PairStore:
    """Tokenized pairs."""

    source: TokenStore
    target: TokenStore

    def __len__(self) -> int:
        return len(self.source.starts) - 1

    def batch(self, rows: NDArray[np.int64]) -> PairBatch:
        """Give the pairs of these rows, padded."""
        return PairBatch(*self.source.padded(rows), *self.target.padded(rows))

    def batches(
        self, rows: NDArray[np.int64], max_tokens: int, seed: int
    ) -> list[NDArray[np.int64]]:
        """Divide `rows` into batches of similar length, in random order that depends on `seed` alone.

        Args:
            rows: Which pairs.
            max_tokens: Most padded tokens of a batch, source or target.
            seed: Of the order.
        """
        generator = np.random.default_rng(seed)
        source, target = self.source.lengths()[rows], self.target.lengths()[rows]
        noise = generator.random(len(rows))
        order = np.lexsort((noise, source, target))
        batches, begin, longest = [], 0, 0
        for place, index in enumerate(order):
            longer = max(longest, int(source[index]), int(target[index]))
            if place > begin and longer * (place - begin + 1) > max_tokens:
                batches.append(rows[order[begin:place]])
                begin, longer = place, max(int(source[index]), int(target[index]))
            longest = longer
        batches.append(rows[order[begin:]])
        generator.shuffle(batches)
        return batches


def find_pair_files(data: Path, kinds: Sequence[PairFiles]) -> list[tuple[Path, bool]]:
    """Find the files of every kind in a folder.

    Returns:
        Each file and whether its columns are reversed, in the order of `kinds` and of names.

    Raises:
        FileNotFoundError: The folder holds no file of a kind.
    """
    found = []
    for kind in kinds:
        files = sorted(data.glob(kind.pattern))
        if not files:
            raise FileNotFoundError(
                f"{data.resolve()} holds no {kind.pattern}; name the folder of the "
                "distillation data by --data."
            )
        found += [(path, kind.reverse) for path in files]
    return found


def load_pairs(
    files: Sequence[tuple[Path, bool]],
    tokenizer_path: Path,
    cache: Path,
    limits: PairLimits,
) -> PairStore:
    """Tokenize pairs of `files`, or load them where a former run has done so.

    Args:
        files: `.tsv.xz` files of two columns, in random order already, and whether the first column is the target.
        tokenizer_path: SentencePiece model of both sides.
        cache: Folder for the arrays.
        limits: Which of them.

    Raises:
        DataError: A file is broken, no pair is left, or the former run was made from other files or limits.
    """
    names = ("source_ids", "source_starts", "target_ids", "target_starts")
    paths = [cache / f"{name}.npy" for name in names]
    origin = describe_origin(files, tokenizer_path, limits.describe())
    if all(path.exists() for path in (cache / ORIGIN_FILE, *paths)):
        require_origin(cache, origin)
    else:
        logger.info("tokenizing up to %d pairs, once, into %s", limits.max_pairs, cache)
        arrays = _tokenize(files, tokenizer_path, limits)
        with replace_directory(cache) as partial:  # killed here, the next run tokenizes again
            for name, array in zip(names, arrays, strict=True):
                np.save(partial / f"{name}.npy", array)
            write_origin(partial, origin)
    try:
        loaded = [np.load(path, mmap_mode="r") for path in paths]
    except (ValueError, EOFError) as error:
        raise DataError(f"{cache}: is broken ({error}); remove it to tokenize again.") from error
    return PairStore(TokenStore(loaded[0], loaded[1]), TokenStore(loaded[2], loaded[3]))


def _tokenize(
    files: Sequence[tuple[Path, bool]], tokenizer_path: Path, limits: PairLimits
) -> tuple[NDArray[np.generic], ...]:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer_path))
    eos_id = tokenizer.eos_id()
    sides: tuple[list[NDArray[np.uint16]], ...] = ([], [])
    lengths: tuple[list[int], ...] = ([], [])
    for path, reverse in files:
        columns = (1, 0) if reverse else (0, 1)
        pairs = limits.take(_read_pairs(path), limits.max_pairs // len(files))
        while chunk := list(islice(pairs, _CHUNK)):
            encoded = [tokenizer.encode([pair[column] for pair in chunk]) for column in columns]
            for source, target in zip(*encoded, strict=True):
                if source and target and max(len(source), len(target)) < limits.max_tokens:
                    for side, ids in enumerate((source, target)):
                        sides[side].append(np.array([*ids, eos_id], dtype=np.uint16))
                        lengths[side].append(len(ids) + 1)
    if not sides[0]:
        raise DataError(f"{files[0][0].parent}: no pair of the data is within the limits.")
    starts = [np.concatenate(([0], np.cumsum(side))).astype(np.int64) for side in lengths]
    return np.concatenate(sides[0]), starts[0], np.concatenate(sides[1]), starts[1]


def _read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:  # noqa: PLR2004
            raise DataError(
                f"{path}:{number}: needs two columns with a TAB between, has {len(fields)} fields."
            )
        yield fields[0], fields[1]
