"""A bundle: one directory with everything that serves a model.

Each file is named in `manifest.json` with its SHA-256. Torch-free and onnx-free: the server reads
bundles, the exporter writes them. A bundle that is truncated, edited, of a newer format, or that
names a file outside its directory is refused with one message that lists every fault.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from export.errors import BundleError
from export.manifest import (
    COLUMNS_FILE,
    DECODER_FILE,
    ENCODER_FILE,
    FORMAT_VERSION,
    MANIFEST_FILE,
    SHORTLIST_DECODER_FILE,
    Architecture,
    DecodingDefaults,
    FileEntry,
    Limits,
    Manifest,
    Precision,
    Score,
    SpecialTokens,
    is_language_code,
    manifest_from_fields,
    parse_manifest,
    read_file_entry,
    value_faults,
)

__all__ = [
    "COLUMNS_FILE",
    "DECODER_FILE",
    "ENCODER_FILE",
    "FORMAT_VERSION",
    "MANIFEST_FILE",
    "SHORTLIST_DECODER_FILE",
    "Architecture",
    "Bundle",
    "BundleError",
    "DecodingDefaults",
    "FileEntry",
    "Limits",
    "Manifest",
    "Precision",
    "Score",
    "SpecialTokens",
    "Vocabulary",
    "describe_file",
    "is_language_code",
    "load_bundle",
    "value_faults",
    "vocabulary_faults",
    "write_manifest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A directory whose content was verified against its manifest."""

    directory: Path
    """Where it lies."""

    manifest: Manifest
    """What it says of itself."""

    @property
    def encoder_path(self) -> Path:
        """The encoder graph."""
        return self.directory / ENCODER_FILE

    @property
    def decoder_path(self) -> Path:
        """The decoder graph."""
        return self.directory / DECODER_FILE

    @property
    def shortlist_path(self) -> Path | None:
        """The lists of a vocabulary shortlist, if there is one."""
        name = self.manifest.shortlist
        return None if name is None else self.directory / name

    @property
    def shortlist_decoder_path(self) -> Path:
        """The decoder graph that takes lists."""
        return self.directory / SHORTLIST_DECODER_FILE

    @property
    def columns_path(self) -> Path:
        """The graph that fetches columns of the output projection."""
        return self.directory / COLUMNS_FILE

    @property
    def source_tokenizer_path(self) -> Path:
        """The SentencePiece model of the source language."""
        return self.directory / self.manifest.tokenizer_files["source"]

    @property
    def target_tokenizer_path(self) -> Path:
        """The SentencePiece model of the target language."""
        return self.directory / self.manifest.tokenizer_files["target"]


def load_bundle(directory: Path) -> Bundle:
    """Read a bundle and verify all of it: manifest, sizes, hashes, and that every file lies inside.

    Raises:
        BundleError: With every fault in one message.
    """
    try:
        text = (directory / MANIFEST_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BundleError(
            str(directory), [f"`{MANIFEST_FILE}` cannot be read: {reason}"]
        ) from error
    raw, faults = parse_manifest(text)
    if raw is None:
        raise BundleError(str(directory), faults)
    manifest = manifest_from_fields(raw, faults)
    files = raw.get("files")
    if isinstance(files, dict):  # even when another part of the manifest is at fault
        for name, entry in files.items():
            faults.extend(_file_faults(directory, name, entry))
    if manifest is None or faults:
        raise BundleError(str(directory), faults)
    return Bundle(directory=directory, manifest=manifest)


class Vocabulary(Protocol):
    """What a tokenizer says of itself."""

    @property
    def eos_id(self) -> int:
        """Ends source and target."""

    @property
    def unk_id(self) -> int:
        """Stands for what the vocabulary cannot spell."""

    @property
    def vocab_size(self) -> int:
        """Pieces of the target."""


def vocabulary_faults(manifest: Manifest, vocabulary: Vocabulary) -> Iterator[str]:
    """Compare the tokenizer with what the manifest says of it."""
    for name, found, expected in (
        ("eos_id", vocabulary.eos_id, manifest.special_tokens.eos_id),
        ("unk_id", vocabulary.unk_id, manifest.special_tokens.unk_id),
        ("vocab_size", vocabulary.vocab_size, manifest.architecture.vocab_size),
    ):
        if found != expected:
            yield f"`{name}` is {found} in the tokenizer, but {expected} in the manifest"


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write `manifest.json` into a bundle's directory, whole or not at all."""
    unfinished = directory / f".{MANIFEST_FILE}.tmp"
    unfinished.write_text(manifest.to_json(), encoding="utf-8")
    os.replace(unfinished, directory / MANIFEST_FILE)


def describe_file(path: Path) -> FileEntry:
    """Give size and hash of a file, as `Manifest.files` holds them."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(sha256=digest, size_bytes=stream.tell())


def _file_faults(directory: Path, name: str, raw: Any) -> Iterator[str]:
    """Compare one file with its entry, as it stands in the manifest."""
    if not _is_plain(name):
        yield f"file {name!r} is not a plain name inside the bundle"
        return
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        yield f"file {name!r} leads outside the bundle"
        return
    if not path.is_file():
        yield f"file {name!r} is missing"
        return
    expected = read_file_entry(raw)
    if expected is None:
        return  # told already, as a fault of the manifest
    if re.fullmatch(r"[0-9a-f]{64}", expected.sha256) is None:
        yield f"file {name!r} has a malformed SHA-256 in the manifest"
    try:
        found = describe_file(path)
    except OSError as error:
        yield f"file {name!r} cannot be read: {error.strerror}"
        return
    if found.size_bytes != expected.size_bytes:
        yield f"file {name!r} has {found.size_bytes} bytes, but must have {expected.size_bytes}"
    if found.sha256 != expected.sha256:
        yield (
            f"file {name!r} has SHA-256 {found.sha256[:12]}…, but must have {expected.sha256[:12]}…"
        )


def _is_plain(name: str) -> bool:
    return name not in {"", ".", "..", MANIFEST_FILE} and not re.search(r"[/\\\x00:]", name)
