"""The vocabulary shortlist of a bundle: which target words a translation of given source words may need.

Torch-free: the exporter writes it, the server reads it. `shortlist.npz` is a NumPy archive without pickle, 3 arrays:

    frequent   (F,)          the most frequent target words, EOS among them: the beginning of every list
    offsets    (V_s + 1,)    where the words of each source word begin in `targets`
    targets    (offsets[-1],)  target words of all source words one after the other, the best of each first

Words are ids in uint16, or uint32 where a vocabulary is larger. The list of a sentence is `frequent` and the words of
all its source words, each once, ascending. With `frequent` = [0, 5], and [5, 9] for source word 3, the source (3, 0)
has the list [0, 5, 9] when source word 0 has no words of its own.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from export.errors import BundleError

__all__ = [
    "SHORTLIST_FILE",
    "Shortlist",
    "load_shortlist",
    "save_shortlist",
    "shortlist_faults",
]

SHORTLIST_FILE = "shortlist.npz"

_READ_ERRORS = (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises at a file that is no archive of arrays; an array alone has no names, which is an IndexError."""

_ARRAYS = ("frequent", "offsets", "targets")

IdArray = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlist:
    """Lists of target words; see the module."""

    frequent: IdArray
    """(F,)"""

    offsets: NDArray[np.uint32]
    """(V_s + 1,)"""

    targets: IdArray
    """(offsets[-1],)"""

    @property
    def source_vocab_size(self) -> int:
        """Source words that have a list."""
        return len(self.offsets) - 1

    def words_for(self, source_ids: Sequence[int]) -> NDArray[np.int64]:
        """Give the list of a sentence: target words, ascending, each once. Shape (n,)."""
        offsets, targets = self.offsets, self.targets
        parts = [targets[offsets[word] : offsets[word + 1]] for word in set(source_ids)]
        # By hand: for so few words `np.unique` takes several times as long.
        words = np.sort(np.concatenate([self.frequent, *parts]), kind="stable")
        is_new = np.ones(len(words), bool)
        np.not_equal(words[1:], words[:-1], out=is_new[1:])
        return words[is_new].astype(np.int64)


def save_shortlist(path: Path, shortlist: Shortlist) -> None:
    """Write the file; equal shortlists give equal bytes."""
    with path.open("wb") as stream:
        np.savez_compressed(
            stream,
            frequent=shortlist.frequent,
            offsets=shortlist.offsets,
            targets=shortlist.targets,
        )


def load_shortlist(path: Path) -> Shortlist:
    """Read what `save_shortlist` wrote.

    Raises:
        BundleError: It is no such file, or its arrays do not fit together.
    """
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            arrays = {name: np.asarray(archive[name]) for name in _ARRAYS}
    except _READ_ERRORS as error:
        wanted = ", ".join(_ARRAYS)
        raise BundleError(
            str(path), [f"it is no shortlist: no NumPy archive of {wanted}"]
        ) from error
    faults = [*_array_faults(arrays)]
    if faults:
        raise BundleError(str(path), faults)
    return Shortlist(**arrays)


def _array_faults(arrays: dict[str, NDArray[np.generic]]) -> Iterator[str]:
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind != "u":
            yield f"`{name}` must hold unsigned numbers in one row"
            return
    offsets, num_targets = arrays["offsets"].astype(np.int64), len(arrays["targets"])
    if not len(arrays["frequent"]):
        yield "`frequent` must not be empty"
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != num_targets:
        yield f"`offsets` must lead from 0 to the {num_targets} words of `targets`"
    elif (np.diff(offsets) < 0).any():
        yield "`offsets` must not fall"


def shortlist_faults(
    shortlist: Shortlist, *, source_vocab_size: int, target_vocab_size: int, eos_id: int
) -> Iterator[str]:
    """Compare a shortlist with the vocabularies that it stands for."""
    if shortlist.source_vocab_size != source_vocab_size:
        yield (
            f"the shortlist has {shortlist.source_vocab_size} source words, "
            f"but the tokenizer {source_vocab_size}"
        )
    most = max(int(part.max(initial=0)) for part in (shortlist.frequent, shortlist.targets))
    if most >= target_vocab_size:
        yield f"the shortlist holds the word {most}, but the vocabulary has {target_vocab_size}"
    if eos_id not in shortlist.frequent:
        yield "the end of the sentence is not among the frequent words of the shortlist"
