"""Describe a bundle, after checking every file of it. Without a directory: the embedded ones."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import rich.console
import rich.table

from commands.errors import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from export.bundle import Bundle

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, nargs="*", metavar="BUNDLE", help="a directory")
    parser.add_argument("--json", action="store_true", help="print the manifests as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or JSON, for each bundle."""
    from export.bundle import load_bundle
    from export.errors import BundleError

    directories = arguments.bundle or _embedded()
    try:
        bundles = [load_bundle(directory) for directory in directories]
    except BundleError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    if arguments.json:
        manifests = [dataclasses.asdict(bundle.manifest) for bundle in bundles]
        print(json.dumps(manifests, indent=2, ensure_ascii=False))
        return 0
    console = rich.console.Console()
    for bundle in bundles:
        _print(console, bundle)
    return 0


def _embedded() -> list[Path]:
    from service.loading import embedded_bundles

    directories = embedded_bundles()
    if not directories:
        raise CommandError("no bundle is embedded; name a directory.", exit_code=EXIT_USAGE)
    return directories


def _print(console: rich.console.Console, bundle: Bundle) -> None:
    manifest, architecture = bundle.manifest, bundle.manifest.architecture
    size = sum(entry.size_bytes for entry in manifest.files.values())
    table = rich.table.Table(title=str(bundle.directory), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # a signature must be readable to its end
    rows = {
        "model": f"{manifest.name} {manifest.version}",
        "languages": f"{manifest.source_language} to {manifest.target_language}",
        "precision": manifest.precision,
        "architecture": f"{architecture.num_encoder_layers} + {architecture.num_decoder_layers} layers, "
        f"d = {architecture.d_model}, {architecture.num_heads} heads, {architecture.vocab_size:,} pieces",
        "limits": f"{manifest.limits.max_source_tokens} source and {manifest.limits.max_target_tokens} target tokens "
        "a sentence",
        "decoding": f"beam {manifest.decoding.beam_size}, length penalty {manifest.decoding.length_penalty:g}",
        "licence": manifest.license,
        "size": f"{size / 1e6:.1f} MB in {len(manifest.files)} files, all as the manifest says",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    for score in manifest.scores:
        table.add_row(f"{score.metric}, {score.test_set}", f"{score.value:.2f}  {score.signature}")
    console.print(table)
