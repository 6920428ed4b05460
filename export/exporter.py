"""From a checkpoint to a bundle: both graphs through `torch.onnx`, one file of weights, a manifest."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from export.bundle import (
    DECODER_FILE,
    ENCODER_FILE,
    Architecture,
    Bundle,
    DecodingDefaults,
    Limits,
    Manifest,
    Precision,
    Score,
    SpecialTokens,
    describe_file,
    load_bundle,
    write_manifest,
)
from export.calibration import hidden_range
from export.errors import ExportError
from export.graphs import DecoderGraph, EncoderGraph
from export.layers import FloatLayers, LayerFactory
from export.quantize import Int8Layers
from export.signature import decoder_inputs, decoder_outputs, encoder_inputs, encoder_outputs
from export.tracing import WEIGHTS_FILE, SharedWeights, decoder_example, encoder_example, to_onnx
from model.checkpoint import load_model, replace_directory
from model.config import TransformerConfig
from model.errors import ModelError
from model.tokenizer import Tokenizer
from model.transformer import Transformer

__all__ = ["ModelFacts", "export_bundle", "suppressed_ids", "write_graphs"]


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


def export_bundle(
    checkpoint_dir: Path,
    output_dir: Path,
    precision: Precision,
    facts: ModelFacts,
    extra_files: Sequence[Path] = (),
) -> Bundle:
    """Write a bundle, whole or not at all, and read it back.

    Args:
        checkpoint_dir: Weights, configuration and vocabulary, as `model.checkpoint.save_model` writes them.
        output_dir: Where the bundle goes; what stands there is replaced.
        precision: Of the matrix products.
        facts: What the manifest says beyond the checkpoint.
        extra_files: Model card, licence: copied into the bundle under their own names.

    Raises:
        ExportError: The checkpoint cannot be read, or its limits cannot be met.
    """
    try:
        transformer = load_model(checkpoint_dir).eval()
        tokenizer = Tokenizer.load_directory(checkpoint_dir)
    except ModelError as error:
        raise ExportError(str(error)) from error
    special_tokens = _special_tokens(transformer.config, tokenizer.unk_id)
    with replace_directory(output_dir) as directory:
        write_graphs(
            transformer, directory, precision, facts.limits, suppressed_ids(special_tokens)
        )
        tokenizer_files = [path.name for path in tokenizer.save(directory)]
        for path in extra_files:
            shutil.copyfile(path, directory / path.name)
        manifest = Manifest(
            name=facts.name,
            version=facts.version,
            source_language=facts.source_language,
            target_language=facts.target_language,
            architecture=_architecture(transformer.config),
            precision=precision,
            limits=facts.limits,
            decoding=facts.decoding,
            special_tokens=special_tokens,
            tokenizer_files={"source": tokenizer_files[0], "target": tokenizer_files[-1]},
            license=facts.license,
            scores=facts.scores,
            files={path.name: describe_file(path) for path in sorted(directory.iterdir())},
        )
        write_manifest(directory, manifest)
        load_bundle(directory)
    return Bundle(directory=output_dir, manifest=manifest)


def write_graphs(
    transformer: Transformer,
    directory: Path,
    precision: Precision,
    limits: Limits,
    suppressed_ids: Sequence[int] = (),
) -> None:
    """Write `encoder.onnx`, `decoder.onnx` and the weights that they share."""
    layers: LayerFactory = FloatLayers()
    if precision == "int8":
        layers = Int8Layers(hidden_range(transformer))
    config = transformer.config
    table_length = _table_length(config, limits)
    shape = (config.decoder_layers, config.num_heads, config.head_size)
    encoder = to_onnx(
        EncoderGraph(transformer, layers, table_length),
        encoder_example(),
        encoder_inputs(),
        encoder_outputs(*shape),
    )
    decoder = to_onnx(
        DecoderGraph(transformer, layers, table_length, suppressed_ids),
        decoder_example(config),
        decoder_inputs(*shape),
        decoder_outputs(*shape, config.target_vocab_size),
    )
    with (directory / WEIGHTS_FILE).open("wb") as stream:
        weights = SharedWeights(stream)
        for model, file_name in ((encoder, ENCODER_FILE), (decoder, DECODER_FILE)):
            weights.move_out(model)
            onnx.save(model, directory / file_name)


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
