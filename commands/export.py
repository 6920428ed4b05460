"""Turn a checkpoint into a bundle: both ONNX graphs, weights, tokenizer and a manifest that names every file.

The bundle is written whole or not at all, and read back.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.errors import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from export.bundle import Score
    from export.calibration import ActivationRanges
    from export.exporter import Companions, ModelFacts
    from export.shortlist import Shortlist

__all__ = ["add_arguments", "load_scores", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="directory that training wrote"
    )
    parser.add_argument(
        "output",
        type=Path,
        metavar="BUNDLE",
        help="directory to write; a bundle that is there is replaced, anything else refused",
    )
    parser.add_argument(
        "--precision",
        choices=("int8", "float32", "float16"),
        default="int8",
        help="of the matrix products; float16 is for GPUs, the others are for CPUs (default: %(default)s)",
    )
    parser.add_argument("--name", help="of the model (default: SOURCE-TARGET)")
    parser.add_argument(
        "--model-version", default="1", metavar="V", help="of the model (default: %(default)s)"
    )
    parser.add_argument("--source", required=True, metavar="CODE", help="language, BCP-47")
    parser.add_argument("--target", required=True, metavar="CODE", help="language, BCP-47")
    parser.add_argument(
        "--license", required=True, metavar="SPDX", help="of the weights, such as MPL-2.0"
    )
    parser.add_argument("--beam-size", type=int, metavar="K", help="default of the bundle")
    parser.add_argument(
        "--length-penalty", type=float, metavar="ALPHA", help="default of the bundle"
    )
    parser.add_argument("--max-source-tokens", type=int, metavar="N", help="longer ones are split")
    parser.add_argument("--max-target-tokens", type=int, metavar="N", help="longest translation")
    parser.add_argument(
        "--scores",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what `dragoman evaluate --json` printed (repeatable)",
    )
    parser.add_argument(
        "--file",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a file that belongs to the bundle: model card, licence (repeatable)",
    )
    _add_calibration_arguments(parser)
    _add_shortlist_arguments(parser)


def _add_calibration_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "calibration of int8",
        "how large the model's numbers get on real text; without, less of it is computed with fixed scales",
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="the `calibration.safetensors` of an earlier bundle of the same checkpoint",
    )
    group.add_argument(
        "--calibration-text",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="measure it on some lines of sources, or of source TAB target (repeatable; .xz, .gz or plain)",
    )


_SHORTLIST_DEFAULTS: dict[str, float] = {"best": 50, "frequent": 1000, "least": 0.3}
"""As `export.shortlist_builder` has them, which takes a second to import."""


def _add_shortlist_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "vocabulary shortlist", "which words a translation is looked for in; without, in all"
    )
    group.add_argument(
        "--shortlist", type=Path, metavar="FILE", help="the `shortlist.npz` of an earlier bundle"
    )
    group.add_argument(
        "--shortlist-text",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="make one from source TAB target, or sources that are translated first (repeatable; .xz, .gz or plain)",
    )
    group.add_argument(
        "--shortlist-reversed",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the same from target TAB source (repeatable)",
    )
    group.add_argument(
        "--shortlist-best",
        type=int,
        metavar="N",
        help=f"the most target words of one source word (default: {_SHORTLIST_DEFAULTS['best']})",
    )
    group.add_argument(
        "--shortlist-frequent",
        type=int,
        metavar="N",
        help="the most frequent target words, which are in every list "
        f"(default: {_SHORTLIST_DEFAULTS['frequent']})",
    )
    group.add_argument(
        "--shortlist-least",
        type=float,
        metavar="X",
        help="leave out pairs that were aligned less often in all of the text "
        f"(default: {_SHORTLIST_DEFAULTS['least']})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Export and say what came out."""
    from export.errors import ExportError
    from export.exporter import check_export, export_bundle

    _check_usage(arguments)
    facts = _read_facts(arguments)
    logging.getLogger("torch.onnx").setLevel(
        logging.ERROR
    )  # it warns of packages that nobody needs here
    try:
        check_export(arguments.checkpoint, arguments.output, arguments.precision, facts)
        bundle = export_bundle(
            arguments.checkpoint,
            arguments.output,
            arguments.precision,
            facts,
            _companions(arguments, facts),
        )
    except ExportError as error:
        raise CommandError(str(error)) from error
    size = sum(entry.size_bytes for entry in bundle.manifest.files.values())
    print(f"{bundle.directory}: {bundle.manifest.precision}, {size / 1e6:.1f} MB")
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be, before anything takes time."""
    shortlist_texts = [*arguments.shortlist_text, *arguments.shortlist_reversed]
    named = [path for path in (arguments.shortlist, arguments.calibration) if path is not None]
    for path in (*arguments.file, *shortlist_texts, *arguments.calibration_text, *named):
        if not path.is_file():
            raise CommandError(f"there is no file {path}.", exit_code=EXIT_USAGE)
    if arguments.shortlist is not None and shortlist_texts:
        raise CommandError("give either --shortlist or text for one.", exit_code=EXIT_USAGE)
    if arguments.precision == "float16" and (arguments.shortlist is not None or shortlist_texts):
        raise CommandError("a shortlist is for CPUs: not for float16.", exit_code=EXIT_USAGE)
    _complete_shortlist_options(arguments, has_text=bool(shortlist_texts))
    if arguments.calibration is not None and arguments.calibration_text:
        raise CommandError("give either --calibration or text for one.", exit_code=EXIT_USAGE)
    calibrates = arguments.calibration is not None or arguments.calibration_text
    if calibrates and arguments.precision != "int8":
        raise CommandError("calibration is for --precision int8 only.", exit_code=EXIT_USAGE)


def _companions(arguments: argparse.Namespace, facts: ModelFacts) -> Companions:
    """Read or make what goes into the bundle beside the graphs."""
    from export.exporter import Companions

    ranges = _ranges(arguments, facts)
    return Companions(
        ranges=ranges,
        shortlist=_shortlist(arguments, facts, Companions(ranges=ranges)),
        extra_files=arguments.file,
    )


def _complete_shortlist_options(arguments: argparse.Namespace, *, has_text: bool) -> None:
    """Fill in how a shortlist is made, and refuse it where none is made."""
    for name, default in _SHORTLIST_DEFAULTS.items():
        value = getattr(arguments, f"shortlist_{name}")
        if value is None:
            setattr(arguments, f"shortlist_{name}", default)
            continue
        if not has_text:
            raise CommandError(
                f"--shortlist-{name} goes with --shortlist-text or --shortlist-reversed.",
                exit_code=EXIT_USAGE,
            )
        if name == "least" and not 0 <= value < math.inf:
            raise CommandError(
                "--shortlist-least must be a finite number, 0 or more.", exit_code=EXIT_USAGE
            )
        if name != "least" and value < 1:
            raise CommandError(f"--shortlist-{name} must be at least 1.", exit_code=EXIT_USAGE)


def _ranges(arguments: argparse.Namespace, facts: ModelFacts) -> ActivationRanges | None:
    """Read the ranges that were named, or measure them on the text that was."""
    from export.calibration import load_ranges

    if arguments.calibration is not None:
        return load_ranges(arguments.calibration)
    if not arguments.calibration_text:
        return None
    from commands.calibration_text import measure_on_text

    return measure_on_text(
        arguments.checkpoint, arguments.calibration_text, facts.limits.max_source_tokens
    )


def _shortlist(
    arguments: argparse.Namespace, facts: ModelFacts, companions: Companions
) -> Shortlist | None:
    """Read the shortlist that was named, or make one from the text that was."""
    from export.exporter import export_bundle
    from export.shortlist import load_shortlist

    if arguments.shortlist is not None:
        return load_shortlist(arguments.shortlist)
    texts = [(path, False) for path in arguments.shortlist_text]
    texts += [(path, True) for path in arguments.shortlist_reversed]
    if not texts:
        return None
    from commands.shortlist_text import create_shortlist
    from export.shortlist_builder import build_shortlist

    return create_shortlist(
        arguments.checkpoint,
        texts,
        partial(
            build_shortlist,
            num_best=arguments.shortlist_best,
            num_frequent=arguments.shortlist_frequent,
            least_count=arguments.shortlist_least,
        ),
        lambda directory: export_bundle(
            arguments.checkpoint, directory, arguments.precision, facts, companions
        ),
    )


def load_scores(path: Path) -> list[Score]:
    """Read the output of `dragoman evaluate --json`."""
    from export.bundle import Score

    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return [
            Score(
                test_set=content["test_set"],
                metric=each["metric"],
                value=round(each["value"], 2),
                signature=each["signature"],
            )
            for each in content["scores"]
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommandError(
            f"{path} does not hold what `dragoman evaluate --json` prints: {error}.",
            exit_code=EXIT_USAGE,
        ) from error


def _read_facts(arguments: argparse.Namespace) -> ModelFacts:
    """Take what the user set; the rest stays as the exporter has it."""
    from export.exporter import ModelFacts

    facts = ModelFacts(
        name=arguments.name or f"{arguments.source}-{arguments.target}",
        version=arguments.model_version,
        source_language=arguments.source,
        target_language=arguments.target,
        license=arguments.license,
        scores=tuple(score for path in arguments.scores for score in load_scores(path)),
    )
    return dataclasses.replace(
        facts,
        limits=dataclasses.replace(
            facts.limits, **_given(arguments, "max_source_tokens", "max_target_tokens")
        ),
        decoding=dataclasses.replace(
            facts.decoding, **_given(arguments, "beam_size", "length_penalty")
        ),
    )


def _given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
