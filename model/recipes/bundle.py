"""The last stage of a recipe: from its checkpoint to a bundle, by the command that a user would type.

Training must not import the exporter, and what is exported should not depend on who asked; so `dragoman export` runs as
a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model.errors import TrainingError

_COMPANIONS = ("README.md", "LICENSE")
"""Files beside the weights that belong to the bundle too: model card and licence."""

_SHORTLIST = "shortlist.npz"
"""The vocabulary shortlist, if one was made for the checkpoint's vocabulary."""

_CALIBRATION = "calibration.safetensors"
"""The ranges of activations, if they were measured on text for this checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFacts:
    """What the manifest of a recipe's bundle says beyond the checkpoint."""

    name: str
    """As requests may ask for it."""

    version: str
    """Of the model."""

    source_language: str
    """BCP-47."""

    target_language: str
    """BCP-47."""

    license: str
    """SPDX identifier of the weights."""

    max_source_tokens: int
    """Longest source; the server splits longer ones."""


def write_bundle(
    checkpoint: Path, bundle: Path, facts: BundleFacts, precision: str = "int8"
) -> None:
    """Export a checkpoint as a bundle, with card and licence that lie beside it.

    In int8 scores, shortlist and calibration come with it: they are of int8.

    Raises:
        TrainingError: The export failed; it has told why on stderr.
    """
    command = [sys.executable, "-m", "dragoman", "export", *_arguments(checkpoint, bundle, facts)]
    if precision == "int8":
        command += _int8_arguments(checkpoint)
    else:
        command += ["--precision", precision]
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise TrainingError(f"{checkpoint}: the export failed; the checkpoint is complete.")


def _arguments(checkpoint: Path, bundle: Path, facts: BundleFacts) -> Iterator[str]:
    yield from (str(checkpoint), str(bundle))
    yield from ("--name", facts.name, "--model-version", facts.version)
    yield from ("--source", facts.source_language, "--target", facts.target_language)
    yield from ("--license", facts.license)
    yield from ("--max-source-tokens", str(facts.max_source_tokens))
    for path in (checkpoint / name for name in _COMPANIONS):
        if path.exists():
            yield from ("--file", str(path))


def _int8_arguments(checkpoint: Path) -> Iterator[str]:
    for path in sorted(checkpoint.glob("scores.*.json")):
        yield from ("--scores", str(path))
    if (checkpoint / _SHORTLIST).exists():
        yield from ("--shortlist", str(checkpoint / _SHORTLIST))
    if (checkpoint / _CALIBRATION).exists():
        yield from ("--calibration", str(checkpoint / _CALIBRATION))
