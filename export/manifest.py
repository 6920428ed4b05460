"""What `manifest.json` says, as values, and the way from its text to them and back.

Torch-free and onnx-free. Reading is strict: every fault of the text is found, and
all are told at once.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from export.errors import BundleError

__all__ = [
    "COLUMNS_FILE",
    "DECODER_FILE",
    "ENCODER_FILE",
    "FORMAT_VERSION",
    "MANIFEST_FILE",
    "SHORTLIST_DECODER_FILE",
    "Architecture",
    "DecodingDefaults",
    "FileEntry",
    "Limits",
    "Manifest",
    "Precision",
    "Score",
    "SpecialTokens",
    "is_language_code",
    "manifest_from_fields",
    "parse_manifest",
    "read_file_entry",
    "value_faults",
]

FORMAT_VERSION = 4
"""Of the manifest and of what goes in and out of the graphs. Bundles of other versions are refused."""
MANIFEST_FILE = "manifest.json"
ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
SHORTLIST_DECODER_FILE = "decoder.shortlist.onnx"
COLUMNS_FILE = "columns.onnx"

_MOST = 10_000_000
_BOUNDS: dict[str, tuple[int, int]] = {
    "max_source_tokens": (2, 100_000),  # a word and EOS
    "max_target_tokens": (1, 100_000),
    "target_length_ratio": (0, 100),
    "target_length_offset": (0, 10_000),
    "beam_size": (1, 16),
    "length_penalty": (0, 10),
}
"""Least and most of what is not in [1, `_MOST`]; a default of decoding must be what a request may ask for."""

_LANGUAGE_CODE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)
_MAX_CODE_LENGTH = 64

Precision = Literal["float32", "float16", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """What a file of the bundle must be."""

    sha256: str
    """Hexadecimal, 64 digits."""

    size_bytes: int
    """Exact size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The shape of the graphs, as far as the server must know it."""

    num_encoder_layers: int
    """Layers of the encoder."""

    num_decoder_layers: int
    """Layers of the decoder; each has a self-attention cache and cross keys and values."""

    num_heads: int
    """Attention heads (H)."""

    head_size: int
    """Width of one head (Dh)."""

    d_model: int
    """Width of a position's vector (D)."""

    vocab_size: int
    """Target vocabulary (V)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long sources and targets may be."""

    max_source_tokens: int
    """EOS included; a longer sentence is split before it comes here."""

    max_target_tokens: int
    """The most tokens that one target may have."""

    target_length_ratio: float = 2.0
    """A target has at most ratio x source tokens + `target_length_offset` tokens."""

    target_length_offset: int = 10
    """See `target_length_ratio`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingDefaults:
    """What a request that says nothing gets."""

    beam_size: int
    """Hypotheses kept for a sentence (K)."""

    length_penalty: float
    """Alpha in log_prob / L^alpha."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """Ids that mean something to the decoder."""

    eos_id: int
    """Ends source and target."""

    pad_id: int
    """Fills short sequences; it may be the same as `eos_id`, and the masks decide."""

    unk_id: int
    """Stands for what the vocabulary cannot spell; never produced."""

    bos_id: int | None
    """The decoder's first input. None: the graph ignores the id at position 0; feed `pad_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A measured quality."""

    test_set: str
    """For example "flores200-devtest"."""

    metric: str
    """"BLEU" or "chrF"."""

    value: float
    """On the metric's scale of 0 to 100."""

    signature: str
    """Sacrebleu's, with its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that `manifest.json` says."""

    format_version: int = FORMAT_VERSION
    """Of the bundle's layout."""

    name: str
    """Of the model, as requests may ask for it."""

    version: str
    """Of the model."""

    source_language: str
    """BCP-47."""

    target_language: str
    """BCP-47."""

    architecture: Architecture
    """See `Architecture`."""

    precision: Precision
    """Of the matrix products."""

    limits: Limits
    """See `Limits`."""

    decoding: DecodingDefaults
    """See `DecodingDefaults`."""

    special_tokens: SpecialTokens
    """See `SpecialTokens`."""

    tokenizer_files: dict[str, str]
    """File of the "source" and of the "target" SentencePiece model; often the same one."""

    license: str
    """SPDX identifier of the weights."""

    scores: tuple[Score, ...] = ()
    """As measured, for the model card."""

    int8_caches: bool = False
    """Whether self-attention keeps keys and values as int8; since format 3."""

    shortlist: str | None = None
    """File of the vocabulary shortlist, which `decoder.shortlist.onnx` and `columns.onnx` go with; since format 2."""

    files: dict[str, FileEntry]
    """Every file of the bundle but the manifest itself."""

    def to_json(self) -> str:
        """Give the text of `manifest.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` gave.

        Raises:
            BundleError: With every fault: no JSON; unknown, missing or repeated keys; wrong types
                and impossible values.
        """
        raw, faults = parse_manifest(text)
        manifest = manifest_from_fields(raw, faults) if raw is not None else None
        if manifest is None or faults:
            raise BundleError(MANIFEST_FILE, faults)
        return manifest


def parse_manifest(text: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Parse the JSON object of a manifest; give it, or None, with the faults so far."""
    faults: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        faults.extend(f"key `{name}` is given twice" for name in repeated)
        return dict(pairs)

    try:
        raw = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        return None, [f"`{MANIFEST_FILE}` is not valid JSON ({error})"]
    if not isinstance(raw, dict):
        return None, [f"`{MANIFEST_FILE}` must hold an object, but holds {_kind(raw)}"]
    return raw, faults


def manifest_from_fields(raw: dict[str, Any], faults: list[str]) -> Manifest | None:
    """Check and convert a parsed manifest; what is wrong is added to `faults`."""
    version = raw.get("format_version")
    if "format_version" not in raw:
        faults.append("key `format_version` is missing")
    elif type(version) is int and version > FORMAT_VERSION:
        faults.append(f"format version {version} is newer than the newest known, {FORMAT_VERSION}")
    elif type(version) is int and version < 1:
        faults.append(f"`format_version` must be at least 1, but is {version}")
    elif type(version) is int and version < FORMAT_VERSION:
        faults.append(
            f"format version {version} has graphs that run no more: export the checkpoint again "
            f"(`dragoman export` writes version {FORMAT_VERSION})"
        )
    manifest = _read(Manifest, raw, "", faults)
    if not isinstance(manifest, Manifest):
        return None
    faults.extend([*value_faults(manifest), *_listing_faults(manifest)])
    return manifest


def read_file_entry(raw: Any) -> FileEntry | None:
    """Read one value of `files`; None when it is malformed, which `manifest_from_fields` tells."""
    entry = _read(FileEntry, raw, "files", [])
    return entry if isinstance(entry, FileEntry) else None


_INVALID = object()


def _read(expected: Any, value: Any, where: str, faults: list[str]) -> Any:
    """Turn parsed JSON into `expected`, a type as the dataclasses use it; note every fault."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is types.UnionType:
        return None if value is None else _read(arguments[0], value, where, faults)
    read = _INVALID
    if dataclasses.is_dataclass(expected) and isinstance(value, dict):
        return _read_fields(expected, value, where, faults)
    if origin is tuple and isinstance(value, list):
        items = [_read(arguments[0], v, f"{where}[{i}]", faults) for i, v in enumerate(value)]
        return _INVALID if _INVALID in items else tuple(items)
    if origin is dict and isinstance(value, dict):
        pairs = {k: _read(arguments[1], v, f"{where}[{k!r}]", faults) for k, v in value.items()}
        return _INVALID if _INVALID in pairs.values() else pairs
    if expected is float:
        if type(value) in {int, float} and math.isfinite(value):
            read = float(value)
    elif (origin is Literal and value in arguments) or type(value) is expected:
        read = value
    if read is _INVALID:
        faults.append(f"`{where}` must be {_expectation(expected)}, but is {_kind(value)}")
    return read


def _read_fields(expected: Any, value: dict[str, Any], where: str, faults: list[str]) -> Any:
    hints = typing.get_type_hints(expected)
    fields = {field.name: field for field in dataclasses.fields(expected)}
    path = f"{where}." if where else ""
    faults.extend(f"key `{path}{name}` is unknown" for name in value if name not in fields)
    needed = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    missing = [name for name in needed if name not in value]
    faults.extend(f"key `{path}{name}` is missing" for name in missing)
    given = [name for name in fields if name in value]
    read = {name: _read(hints[name], value[name], path + name, faults) for name in given}
    if missing or _INVALID in read.values():
        return _INVALID
    return expected(**read)


def is_language_code(code: str) -> bool:
    """Tell whether this has the form of a BCP-47 code."""
    return len(code) <= _MAX_CODE_LENGTH and _LANGUAGE_CODE.fullmatch(code) is not None


def value_faults(manifest: Manifest) -> Iterator[str]:
    """Find values of the right type that cannot be."""
    for part in (manifest.architecture, manifest.limits, manifest.decoding):
        yield from _number_faults(dataclasses.asdict(part))
    vocab_size = manifest.architecture.vocab_size
    for name, token_id in dataclasses.asdict(manifest.special_tokens).items():
        if token_id is not None and not 0 <= token_id < vocab_size:
            yield f"`{name}` must be in [0, {vocab_size}), but is {token_id}"
    for name in ("name", "version"):
        if not getattr(manifest, name):
            yield f"`{name}` must not be empty"
    for name in ("source_language", "target_language"):
        code = getattr(manifest, name)
        if not is_language_code(code):
            yield f'`{name}` must be a BCP-47 code such as "pt-BR", but is {_kind(code)}'


def _number_faults(numbers: dict[str, float]) -> Iterator[str]:
    for name, value in numbers.items():
        least, most = _BOUNDS.get(name, (1, _MOST))
        if value < least:
            yield f"`{name}` must be at least {least}, but is {value}"
        if value > most:
            yield f"`{name}` must be at most {most}, but is {value:g}"


def _listing_faults(manifest: Manifest) -> Iterator[str]:
    """Find files that the server needs and `files` does not list."""
    if set(manifest.tokenizer_files) != {"source", "target"}:
        yield "`tokenizer_files` must have the keys `source` and `target` and no other"
    needed = {ENCODER_FILE, DECODER_FILE, *manifest.tokenizer_files.values()}
    if manifest.shortlist is not None:
        needed |= {manifest.shortlist, SHORTLIST_DECODER_FILE, COLUMNS_FILE}
    for name in sorted(needed):
        if name not in manifest.files:
            yield f"`files` does not list {name!r}"


def _expectation(expected: Any) -> str:
    if typing.get_origin(expected) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(expected)))
    if typing.get_origin(expected) is tuple:
        return "a list"
    names = {int: "a whole number", float: "a finite number", str: "text"}
    return names.get(expected, "an object")


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value)[:60]
    return "a list" if isinstance(value, list) else "an object"
