"""From a model of ours to a CTranslate2 model of the same numbers, so that both engines run the same weights.

CTranslate2's `TransformerSpec` describes what ours do: any of the three kinds of positions as an explicit table, tied
matrices stored once, norms after or before the sub-layers, and Marian's decoder that starts from nothing. Its
vocabulary is made of strings; here the string of a token is its id, but for the three that it knows by name.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import torch
from ctranslate2.converters import Converter
from ctranslate2.converters.utils import fuse_linear
from ctranslate2.specs import common_spec
from ctranslate2.specs.transformer_spec import TransformerSpec
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.decoder import DecoderLayer
from model.embedding import InputEmbedding
from model.encoder import EncoderLayer
from model.feed_forward import FeedForward
from model.transformer import Transformer

__all__ = ["save_ctranslate2_model", "vocabulary"]

_ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "silu": common_spec.Activation.SWISH,
    "gelu": common_spec.Activation.GELU,
}
_MAX_POSITIONS = 1024


def save_ctranslate2_model(transformer: Transformer, directory: Path, unk_id: int) -> None:
    """Write a model in float32; the compute type is chosen when CTranslate2 loads it.

    Args:
        transformer: Ours.
        directory: A directory that stands there is replaced.
        unk_id: The unknown piece, which CTranslate2 wants to know.

    Raises:
        ValueError: CTranslate2 has no such Transformer.
    """
    _OurConverter(transformer, unk_id).convert(str(directory), force=True)


def vocabulary(size: int, *, eos_id: int, bos_id: int | None, unk_id: int) -> list[str]:
    """Name every token by its id, the special ones as CTranslate2 expects them."""
    tokens = [str(token_id) for token_id in range(size)]
    for token_id, name in ((unk_id, "<unk>"), (bos_id, "<s>"), (eos_id, "</s>")):
        if token_id is not None:
            tokens[token_id] = name
    return tokens


class _OurConverter(Converter):  # type: ignore[misc]
    def __init__(self, transformer: Transformer, unk_id: int) -> None:
        self._transformer = transformer
        self._unk_id = unk_id

    def _load(self) -> TransformerSpec:
        config = self._transformer.config
        pre_norm = config.norm_order == "pre"
        if config.final_norm and not pre_norm:
            raise ValueError("CTranslate2 has no final norm after layers that end in a norm.")
        spec = TransformerSpec.from_config(
            (config.encoder_layers, config.decoder_layers),
            config.num_heads,
            pre_norm=pre_norm,
            no_final_norm=not config.final_norm,
            activation=_ACTIVATIONS[config.activation],
            layernorm_embedding=config.embedding_norm,
        )
        with torch.no_grad():
            _set_encoder(spec.encoder, self._transformer)
            _set_decoder(spec.decoder, self._transformer)
        bos_id = None if config.start_from_zero_embedding else config.bos_id
        special: dict[str, Any] = {
            "eos_id": config.eos_id,
            "bos_id": bos_id,
            "unk_id": self._unk_id,
        }
        spec.register_source_vocabulary(vocabulary(config.source_vocab_size, **special))
        spec.register_target_vocabulary(vocabulary(config.target_vocab_size, **special))
        spec.config.add_source_eos = False  # our source ids end in EOS already
        spec.config.layer_norm_epsilon = config.norm_eps
        return spec


def _set_encoder(spec: Any, transformer: Transformer) -> None:
    _set_embedding(spec, spec.embeddings[0], transformer.source_embedding)
    for layer_spec, module in zip(spec.layer, transformer.encoder.layers, strict=True):
        layer = cast(EncoderLayer, module)
        _set_self_attention(layer_spec.self_attention, layer.self_attention)
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_attention_sublayer.norm)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_sublayer.norm)
    if transformer.config.final_norm:
        _set_norm(spec.layer_norm, transformer.encoder.final_norm)


def _set_decoder(spec: Any, transformer: Transformer) -> None:
    spec.start_from_zero_embedding = transformer.config.start_from_zero_embedding
    _set_embedding(spec, spec.embeddings, transformer.target_embedding)
    for layer_spec, module in zip(spec.layer, transformer.decoder.layers, strict=True):
        layer = cast(DecoderLayer, module)
        _set_self_attention(layer_spec.self_attention, layer.self_attention)
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_attention_sublayer.norm)
        _set_cross_attention(layer_spec.attention, layer.cross_attention)
        _set_norm(layer_spec.attention.layer_norm, layer.cross_attention_sublayer.norm)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_sublayer.norm)
    if transformer.config.final_norm:
        _set_norm(spec.layer_norm, transformer.decoder.final_norm)
    _set_linear(spec.projection, transformer.output_projection)


def _set_embedding(spec: Any, table: Any, embedding: InputEmbedding) -> None:
    table.weight = embedding.weight.detach()
    spec.scale_embeddings = not math.isclose(embedding.scale, 1.0)
    positions = embedding.positions
    rows = getattr(positions, "table", None)  # learned positions have an end
    count = _MAX_POSITIONS if rows is None else rows.num_embeddings - positions.offset
    spec.position_encodings.encodings = positions(torch.arange(count)).detach()
    if isinstance(embedding.norm, nn.LayerNorm):
        _set_norm(spec.layernorm_embedding, embedding.norm)


def _set_self_attention(spec: Any, attention: MultiHeadAttention) -> None:
    _fuse(spec.linear[0], attention.query_proj, attention.key_proj, attention.value_proj)
    _set_linear(spec.linear[1], attention.output_proj)


def _set_cross_attention(spec: Any, attention: MultiHeadAttention) -> None:
    _set_linear(spec.linear[0], attention.query_proj)
    _fuse(spec.linear[1], attention.key_proj, attention.value_proj)
    _set_linear(spec.linear[2], attention.output_proj)


def _set_feed_forward(spec: Any, feed_forward: FeedForward) -> None:
    _set_linear(spec.linear_0, feed_forward.linear_in)
    _set_linear(spec.linear_1, feed_forward.linear_out)


def _fuse(spec: Any, *linears: nn.Linear) -> None:
    """Store several projections of one input as one."""
    parts = [common_spec.LinearSpec() for _ in linears]
    for part, linear in zip(parts, linears, strict=True):
        _set_linear(part, linear)
    fuse_linear(spec, parts)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = linear.weight.detach()
    if linear.bias is not None:
        spec.bias = linear.bias.detach()


def _set_norm(spec: Any, norm: nn.Module) -> None:
    weight, bias = cast(Tensor, norm.weight), cast(Tensor, norm.bias)
    spec.gamma, spec.beta = weight.detach(), bias.detach()
