"""From a checkpoint to a bundle: both graphs through `torch.onnx`, one file of weights, a manifest."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from torch import nn

from export.bundle import (
    COLUMNS_FILE,
    DECODER_FILE,
    ENCODER_FILE,
    MANIFEST_FILE,
    SHORTLIST_DECODER_FILE,
    Architecture,
    Bundle,
    BundleError,
    DecodingDefaults,
    Limits,
    Manifest,
    Precision,
    Score,
    SpecialTokens,
    describe_file,
    load_bundle,
    value_faults,
    write_manifest,
)
from export.calibration import (
    CALIBRATION_FILE,
    ActivationRanges,
    measure_ranges,
    range_faults,
    save_ranges,
)
from export.errors import ExportError
from export.graphs import DecoderGraph, EncoderGraph
from export.layers import FloatLayers, LayerFactory
from export.quantize import Int8Layers
from export.shortlist import SHORTLIST_FILE, Shortlist, save_shortlist, shortlist_faults
from export.shortlist_graphs import ColumnsGraph, ShortlistDecoderGraph
from export.signature import (
    column_inputs,
    column_outputs,
    decoder_inputs,
    decoder_outputs,
    encoder_inputs,
    encoder_outputs,
    shortlist_decoder_inputs,
    shortlist_decoder_outputs,
)
from export.smoothing import smooth
from export.tracing import (
    WEIGHTS_FILE,
    SharedWeights,
    columns_example,
    decoder_example,
    encoder_example,
    shortlist_decoder_example,
    to_onnx,
)
from model.checkpoint import load_model, replace_directory
from model.config import TransformerConfig
from model.errors import ModelError
from model.tokenizer import Tokenizer
from model.transformer import Transformer

__all__ = [
    "Companions",
    "ModelFacts",
    "check_export",
    "export_bundle",
    "keeps_int8",
    "suppressed_ids",
    "write_graphs",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a bundle says of its model that the checkpoint does not know."""

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

    limits: Limits = Limits(max_source_tokens=256, max_target_tokens=512)
    """Longest source and target; tables of positions are made for them."""

    decoding: DecodingDefaults = DecodingDefaults(beam_size=4, length_penalty=1.0)
    """What a request gets that asks for nothing."""

    scores: tuple[Score, ...] = ()
    """Measured quality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """What was made for a checkpoint and goes into its bundle beside the graphs."""

    shortlist: Shortlist | None = None
    """Of this vocabulary; None leaves it out."""

    ranges: ActivationRanges | None = None
    """Of this model's activations, for int8; None measures them on random words."""

    extra_files: Sequence[Path] = ()
    """Model card, licence: copied under their own names."""


def check_export(
    checkpoint_dir: Path, output_dir: Path, precision: Precision, facts: ModelFacts
) -> None:
    """Refuse what `export_bundle` would refuse whatever its companions, which may take long to make.

    Raises:
        ExportError: As `export_bundle`.
        BundleError: As `export_bundle`.
    """
    transformer, tokenizer = _load(checkpoint_dir)
    manifest = _manifest(facts, precision, transformer.config, tokenizer)
    faults = [*value_faults(manifest), *_place_faults(output_dir)]
    if faults:
        raise BundleError(str(output_dir), faults)
    _table_length(transformer.config, facts.limits)


def export_bundle(
    checkpoint_dir: Path,
    output_dir: Path,
    precision: Precision,
    facts: ModelFacts,
    companions: Companions = Companions(),
) -> Bundle:
    """Write a bundle, whole or not at all, and read it back.

    Args:
        checkpoint_dir: Weights, configuration and vocabulary, as `model.checkpoint.save_model` writes them.
        output_dir: Where the bundle goes; a bundle that stands there is replaced.
        precision: Of the matrix products.
        facts: What the manifest says beyond the checkpoint.
        companions: What else goes into it.

    Raises:
        ExportError: The checkpoint cannot be read, or its limits cannot be met.
        BundleError: What it would say of itself cannot be, or something else stands in its place.
    """
    transformer, tokenizer = _load(checkpoint_dir)
    manifest = dataclasses.replace(
        _manifest(facts, precision, transformer.config, tokenizer),
        int8_caches=keeps_int8(precision, companions.ranges),
        shortlist=None if companions.shortlist is None else SHORTLIST_FILE,
    )
    faults = [
        *value_faults(manifest),
        *_place_faults(output_dir),
        *_companion_faults(companions, precision, transformer, tokenizer),
    ]
    if faults:
        raise BundleError(str(output_dir), faults)
    with replace_directory(output_dir) as directory:
        write_graphs(
            transformer,
            directory,
            precision,
            facts.limits,
            suppressed_ids(manifest.special_tokens),
            with_shortlist=companions.shortlist is not None,
            ranges=companions.ranges,
        )
        _write_companions(directory, companions)
        tokenizer_files = [path.name for path in tokenizer.save(directory)]
        _copy_into(directory, companions.extra_files)
        manifest = dataclasses.replace(
            manifest,
            tokenizer_files={"source": tokenizer_files[0], "target": tokenizer_files[-1]},
            files={path.name: describe_file(path) for path in sorted(directory.iterdir())},
        )
        write_manifest(directory, manifest)
        load_bundle(directory)
    return Bundle(directory=output_dir, manifest=manifest)


def _load(checkpoint_dir: Path) -> tuple[Transformer, Tokenizer]:
    try:
        return load_model(checkpoint_dir).eval(), Tokenizer.load_directory(checkpoint_dir)
    except ModelError as error:
        raise ExportError(str(error)) from error


def _companion_faults(
    companions: Companions, precision: Precision, transformer: Transformer, tokenizer: Tokenizer
) -> Iterator[str]:
    """A shortlist is of one vocabulary, ranges are of one model and of no use in float32."""
    if companions.shortlist is not None:
        if precision == "float16":
            yield "shortlist: float16 is for GPUs, which look at all words"
        yield from shortlist_faults(
            companions.shortlist,
            source_vocab_size=tokenizer.source_vocab_size,
            target_vocab_size=tokenizer.target_vocab_size,
            eos_id=tokenizer.eos_id,
        )
    if companions.ranges is not None:
        if precision != "int8":
            yield f"calibration: {precision} has no scales to choose"
        yield from range_faults(companions.ranges, transformer)


def _write_companions(directory: Path, companions: Companions) -> None:
    if companions.ranges is not None:
        save_ranges(directory / CALIBRATION_FILE, companions.ranges)
    if companions.shortlist is not None:
        save_shortlist(directory / SHORTLIST_FILE, companions.shortlist)


def _copy_into(directory: Path, files: Sequence[Path]) -> None:
    for path in files:
        if (directory / path.name).exists() or path.name == MANIFEST_FILE:
            raise ExportError(f"{path}: the bundle has another file of this name.")
        shutil.copyfile(path, directory / path.name)


def write_graphs(  # noqa: PLR0913 - all that decides what is in a graph
    transformer: Transformer,
    directory: Path,
    precision: Precision,
    limits: Limits,
    suppressed_ids: Sequence[int] = (),
    *,
    with_shortlist: bool = False,
    ranges: ActivationRanges | None = None,
) -> None:
    """Write `encoder.onnx`, `decoder.onnx`, those that a shortlist needs, and the weights that all share."""
    layers: LayerFactory = FloatLayers()
    int8_caches = keeps_int8(precision, ranges)
    if precision == "int8":
        ranges = ranges or measure_ranges(transformer)
        if any(range_faults(ranges, transformer)):
            raise ExportError("The model's activations are not finite, or all zero.")
        smoothed = smooth(transformer, ranges)
        transformer = smoothed.transformer
        layers = Int8Layers(ranges.hidden, smoothed.fixed, smoothed.kept)
    config = transformer.config
    table_length = _table_length(config, limits)
    shape = (config.decoder_layers, config.num_heads, config.head_size)
    models = {
        ENCODER_FILE: to_onnx(
            _of_precision(EncoderGraph(transformer, layers, table_length), precision),
            encoder_example(),
            encoder_inputs(),
            encoder_outputs(*shape, precision),
        ),
        DECODER_FILE: to_onnx(
            _of_precision(
                DecoderGraph(transformer, layers, table_length, suppressed_ids), precision
            ),
            decoder_example(config, precision, int8_caches=int8_caches),
            decoder_inputs(*shape, precision, int8_caches=int8_caches),
            decoder_outputs(*shape, config.target_vocab_size, precision, int8_caches=int8_caches),
        ),
    }
    if with_shortlist:
        models[SHORTLIST_DECODER_FILE] = to_onnx(
            ShortlistDecoderGraph(transformer, layers, table_length),
            shortlist_decoder_example(config, precision, int8_caches=int8_caches),
            shortlist_decoder_inputs(*shape, config.d_model, precision, int8_caches=int8_caches),
            shortlist_decoder_outputs(*shape, int8_caches=int8_caches),
        )
        models[COLUMNS_FILE] = to_onnx(
            ColumnsGraph(transformer, layers, suppressed_ids),
            columns_example(),
            column_inputs(),
            column_outputs(config.d_model, precision),
        )
    with (directory / WEIGHTS_FILE).open("wb") as stream:
        weights = SharedWeights(stream)
        for file_name, model in models.items():
            weights.move_out(model)
            onnx.save(model, directory / file_name)


def keeps_int8(precision: Precision, ranges: ActivationRanges | None) -> bool:
    """Whether self-attention keeps keys and values as int8: where text told how large they get."""
    return precision == "int8" and ranges is not None and bool(ranges.kept)


def _of_precision(graph: nn.Module, precision: Precision) -> nn.Module:
    """In float16 all numbers are, but for what the graphs themselves take to float32."""
    if precision != "float16":
        return graph
    half = copy.deepcopy(graph).half()
    for name, tensor in graph.state_dict().items():
        if torch.isfinite(tensor).ne(torch.isfinite(half.state_dict()[name])).any():
            raise ExportError(f"{name} holds a number that is too large for float16.")
    return half


def _table_length(config: TransformerConfig, limits: Limits) -> int:
    length = max(limits.max_source_tokens, limits.max_target_tokens)
    if config.positional_encoding == "learned" and length > config.max_positions:
        raise ExportError(
            f"The limits ask for {length} positions, but the model learned {config.max_positions}."
        )
    return length


def _architecture(config: TransformerConfig) -> Architecture:
    return Architecture(
        num_encoder_layers=config.encoder_layers,
        num_decoder_layers=config.decoder_layers,
        num_heads=config.num_heads,
        head_size=config.head_size,
        d_model=config.d_model,
        vocab_size=config.target_vocab_size,
    )


def _manifest(
    facts: ModelFacts, precision: Precision, config: TransformerConfig, tokenizer: Tokenizer
) -> Manifest:
    """What is known before any file is written."""
    return Manifest(
        name=facts.name,
        version=facts.version,
        source_language=facts.source_language,
        target_language=facts.target_language,
        architecture=_architecture(config),
        precision=precision,
        limits=facts.limits,
        decoding=facts.decoding,
        special_tokens=_special_tokens(config, tokenizer.unk_id),
        tokenizer_files={},
        license=facts.license,
        scores=facts.scores,
        files={},
    )


def _place_faults(directory: Path) -> Iterator[str]:
    """A bundle takes the place of nothing but a bundle: whatever else stands there is somebody's."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        yield "stands there already and is no directory"
    elif _names(directory) and MANIFEST_FILE not in _names(directory):
        yield f"holds files but no `{MANIFEST_FILE}`, so it is no bundle to replace"


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


def _special_tokens(config: TransformerConfig, unk_id: int) -> SpecialTokens:
    return SpecialTokens(
        eos_id=config.eos_id,
        pad_id=config.pad_id,
        unk_id=unk_id,
        bos_id=None if config.start_from_zero_embedding else config.bos_id,
    )


def suppressed_ids(tokens: SpecialTokens) -> tuple[int, ...]:
    """Give the ids that no translation may hold."""
    never = {tokens.unk_id, tokens.pad_id, tokens.bos_id} - {tokens.eos_id, None}
    return tuple(sorted(token for token in never if token is not None))
