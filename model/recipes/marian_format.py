"""Read Marian's binary model files (little endian), as Firefox Translations ships them.

Layout: u64 version, u64 n; n headers of four u64 (name length with its closing zero, type, number of dimensions, byte
length); n names; n shapes of i32; u64 padding and that many bytes; n tensors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.errors import ModelError

_FLOAT32 = 0x404
_INT8 = 0x4101
_EMBEDDING = "Wemb"
_HEADER = struct.Struct("<4Q")


class MarianFormatError(ModelError):
    """The file is no Marian binary model that this reader knows."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    type: int
    shape: tuple[int, ...]
    num_bytes: int


def load_marian_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read every float32 and int8 tensor as float32, matrices as (inputs, outputs).

    An int8 matrix of shape (r, c) is r*c bytes and one float32 multiplier: value = byte / multiplier. All of them but
    the embedding are stored transposed. The multipliers of activations are left out: only an int8 engine needs them.

    Args:
        path: A `model.*.bin`.

    Returns:
        Tensors by Marian's names; `Wemb` is (V, D).
    """
    blob = path.read_bytes()
    try:
        entries, offset = _read_entries(blob)
        tensors = {}
        for entry in entries:
            raw = blob[offset : offset + entry.num_bytes]
            offset += entry.num_bytes
            if entry.type in (_FLOAT32, _INT8) and not entry.name.endswith("_QuantMultA"):
                tensors[entry.name] = _decode(entry, raw)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise MarianFormatError(f"{path} is not a readable Marian model: {error}") from error
    return tensors


def _read_entries(blob: bytes) -> tuple[list[_Entry], int]:
    version, count = struct.unpack_from("<2Q", blob, 0)
    if version != 1:
        raise ValueError(f"version must be 1, but is {version}")
    offset = 16
    headers = [_HEADER.unpack_from(blob, offset + i * _HEADER.size) for i in range(count)]
    offset += count * _HEADER.size
    names = []
    for name_length, *_ in headers:
        names.append(blob[offset : offset + name_length - 1].decode())
        offset += name_length
    entries = []
    for name, (_, type_, rank, num_bytes) in zip(names, headers, strict=True):
        shape = struct.unpack_from(f"<{rank}i", blob, offset)
        offset += 4 * rank
        entries.append(_Entry(name, type_, shape, num_bytes))
    (padding,) = struct.unpack_from("<Q", blob, offset)
    return entries, offset + 8 + padding


def _decode(entry: _Entry, raw: bytes) -> NDArray[np.float32]:
    if entry.type == _FLOAT32:
        size = int(np.prod(entry.shape))
        return np.frombuffer(raw, dtype="<f4", count=size).reshape(entry.shape).copy()
    rows, columns = entry.shape
    size = rows * columns
    (multiplier,) = struct.unpack_from("<f", raw, size)
    values = np.frombuffer(raw, dtype=np.int8, count=size).astype(np.float32)
    values /= np.float32(multiplier)
    if entry.name == _EMBEDDING:
        return values.reshape(rows, columns)
    return np.ascontiguousarray(values.reshape(columns, rows).T)
