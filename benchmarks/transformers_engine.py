"""Hugging Face transformers with the same weights, in its class for Marian's models.

Its decoder starts from the padding token, whose vector is zero. Where ours ends sentences with the token that it pads
with, a padding token is added behind the vocabulary, which is never generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from benchmarks.engine import Ids, Search
from export.bundle import SpecialTokens
from model.attention import MultiHeadAttention
from model.decoder import DecoderLayer
from model.encoder import EncoderLayer
from model.transformer import Transformer

__all__ = ["TransformersEngine"]

_MAX_POSITIONS = 512
_SENTENCES_A_BATCH = 32


class TransformersEngine:
    """`generate` in float32; see `benchmarks.engine.TranslationEngine`."""

    def __init__(self, transformer: Transformer, special: SpecialTokens, num_threads: int) -> None:
        self.label = f"transformers 1 x {num_threads}"
        self._num_threads = num_threads
        self._eos_id = special.eos_id
        self._pad_id = transformer.config.source_vocab_size
        self._suppressed = sorted({special.unk_id, special.pad_id} - {special.eos_id})
        self._model: Any = _create(transformer, self._pad_id)

    @torch.inference_mode()
    def translate(self, sources: Sequence[Ids], search: Search) -> list[Ids]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self._num_threads)
        try:
            return [
                answer
                for start in range(0, len(sources), _SENTENCES_A_BATCH)
                for answer in self._generate(sources[start : start + _SENTENCES_A_BATCH], search)
            ]
        finally:
            torch.set_num_threads(threads)

    def _generate(self, sources: Sequence[Ids], search: Search) -> list[Ids]:
        longest = max(map(len, sources))
        padded = [[*source, *[self._pad_id] * (longest - len(source))] for source in sources]
        ids = torch.tensor(padded)
        forced = search.num_tokens
        lengths = {"max_length": _MAX_POSITIONS}
        if forced is not None:
            lengths = {"min_new_tokens": forced, "max_new_tokens": forced}
        found = self._model.generate(
            input_ids=ids,
            attention_mask=(ids != self._pad_id).long(),
            num_beams=search.beam_size,
            do_sample=False,
            suppress_tokens=self._suppressed,
            forced_eos_token_id=None,
            **lengths,
        )
        return [self._until_end(answer) for answer in found[:, 1:].tolist()]

    def _until_end(self, answer: list[int]) -> Ids:
        ends = [
            place for place, token in enumerate(answer) if token in {self._eos_id, self._pad_id}
        ]
        return tuple(answer[: ends[0]] if ends else answer)


def _create(transformer: Transformer, pad_id: int) -> nn.Module:
    config = transformer.config
    if config.norm_order != "post" or config.final_norm or config.tie_embeddings != "all":
        raise ValueError("transformers has no Marian model of this shape.")
    model: Any = MarianMTModel(
        MarianConfig(
            vocab_size=pad_id + 1,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            activation_function=config.activation,
            max_position_embeddings=_MAX_POSITIONS,
            scale_embedding=config.scale_embeddings,
            pad_token_id=pad_id,
            eos_token_id=config.eos_id,
            decoder_start_token_id=pad_id,
            bos_token_id=None,
            forced_eos_token_id=None,
        )
    )
    model.eval()
    with torch.no_grad():
        _copy(model, transformer)
    return cast(nn.Module, model)


def _copy(target: Any, source: Transformer) -> None:
    table = nn.functional.pad(source.source_embedding.weight, (0, 0, 0, 1))
    target.model.shared.weight.copy_(table)
    for stack, embedding in (
        (target.model.encoder, source.source_embedding),
        (target.model.decoder, source.target_embedding),
    ):
        positions = embedding.positions(torch.arange(_MAX_POSITIONS))
        stack.embed_positions.weight.copy_(positions)
        for layer in stack.layers:  # our norms have a smaller epsilon
            for norm in layer.modules():
                if isinstance(norm, nn.LayerNorm):
                    norm.eps = source.config.norm_eps
    bias = torch.full_like(target.final_logits_bias, -1e9)
    bias[:, :-1] = _bias_of(source.output_projection)
    target.final_logits_bias.copy_(bias)
    for layer, module in zip(target.model.encoder.layers, source.encoder.layers, strict=True):
        ours = cast(EncoderLayer, module)
        _copy_attention(layer.self_attn, ours.self_attention)
        _copy_linear(layer.self_attn_layer_norm, ours.self_attention_sublayer.norm)
        _copy_feed_forward(layer, ours)
    for layer, module in zip(target.model.decoder.layers, source.decoder.layers, strict=True):
        decoder_layer = cast(DecoderLayer, module)
        _copy_attention(layer.self_attn, decoder_layer.self_attention)
        _copy_linear(layer.self_attn_layer_norm, decoder_layer.self_attention_sublayer.norm)
        _copy_attention(layer.encoder_attn, decoder_layer.cross_attention)
        _copy_linear(layer.encoder_attn_layer_norm, decoder_layer.cross_attention_sublayer.norm)
        _copy_feed_forward(layer, decoder_layer)


def _copy_attention(target: Any, source: MultiHeadAttention) -> None:
    _copy_linear(target.q_proj, source.query_proj)
    _copy_linear(target.k_proj, source.key_proj)
    _copy_linear(target.v_proj, source.value_proj)
    _copy_linear(target.out_proj, source.output_proj)


def _copy_feed_forward(target: Any, source: EncoderLayer | DecoderLayer) -> None:
    _copy_linear(target.fc1, source.feed_forward.linear_in)
    _copy_linear(target.fc2, source.feed_forward.linear_out)
    _copy_linear(target.final_layer_norm, source.feed_forward_sublayer.norm)


def _copy_linear(target: Any, source: nn.Module) -> None:
    """Also of a norm."""
    target.weight.copy_(cast(Tensor, source.weight))
    bias = source.bias
    target.bias.copy_(torch.zeros_like(target.bias) if bias is None else cast(Tensor, bias))


def _bias_of(linear: nn.Linear) -> Tensor:
    return torch.zeros(linear.out_features) if linear.bias is None else linear.bias
