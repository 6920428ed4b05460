"""The model as two graphs: one runs once a sentence, the other once a token.

`EncoderGraph` turns source ids into what the decoder's cross-attention reads; `DecoderGraph` is one
step of `R` rows of any age. Both take their numbers from a `model.transformer.Transformer` and compute
the same, in a form that fits the runtime: projections of one input are one product, positions come
from a table, the caches are updated in place, beams share cross-attention keys, and nothing in a row
depends on what else is in the batch. Shape letters are those of `export/signature.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.candidates import best_candidates, edit
from export.layers import LayerFactory
from export.operators import mix_heads, ones_like_block, reshape, score_heads, take
from export.signature import VOCAB_BLOCK, padded_vocab_size
from model.attention import MultiHeadAttention
from model.decoder import DecoderLayer
from model.embedding import InputEmbedding
from model.encoder import EncoderLayer
from model.feed_forward import FeedForward
from model.transformer import Transformer

__all__ = ["DecoderBody", "DecoderGraph", "EncoderGraph", "vocabulary_table"]

_NO_SUCH_INPUTS = [None] * 5
"""Of `GroupQueryAttention`, between the lengths and the scales of a cache of int8: rotations, positions, bias, sink."""

_MASKED = -1e30
"""Added to a score that may not be attended: exp(masked - maximum) is exactly 0."""


class EncoderGraph(nn.Module):
    """Source ids and mask (B, S) to cross-attention keys (B, H, Dh, S) and values (B, H, S, Dh) a decoder layer."""

    def __init__(self, transformer: Transformer, layers: LayerFactory, max_length: int) -> None:
        """Take the encoder of `transformer`, and of its decoder what only depends on the source."""
        super().__init__()
        self.num_heads = transformer.config.num_heads
        self.embedding = _Embedding(transformer.source_embedding, layers, max_length)
        self.layers = nn.ModuleList(
            _EncoderLayer(cast(EncoderLayer, layer), layers) for layer in transformer.encoder.layers
        )
        self.final_norm = transformer.encoder.final_norm
        cross = [cast(DecoderLayer, layer).cross_attention for layer in transformer.decoder.layers]
        projections = [p for attention in cross for p in (attention.key_proj, attention.value_proj)]
        self.cross_projections = layers.parallel(
            [projection.weight.detach() for projection in projections],
            [_bias_of(projection) for projection in projections],
            source=projections[0],
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Encode a padded batch; see the class.

        Inside, positions stand before sentences: so attention multiplies heads where they are.
        """
        positions = torch.arange(input_ids.shape[1]).unsqueeze(1)
        x = self.embedding(input_ids.t(), positions)  # (S, B, D)
        bias = _mask_bias(attention_mask)
        for layer in self.layers:
            x = layer(x, bias)
        outputs = []
        for index, part in enumerate(self.cross_projections(self.final_norm(x))):
            heads = _split_heads(part, self.num_heads)  # (S, B, H, Dh)
            order = (1, 2, 3, 0) if index % 2 == 0 else (1, 2, 0, 3)
            outputs.append(heads.permute(order))
        return tuple(outputs)


class DecoderBody(nn.Module):
    """One token of each row to its hidden state, with the caches one token longer: the decoder without its end."""

    def __init__(self, transformer: Transformer, layers: LayerFactory, max_length: int) -> None:
        """Take the decoder of `transformer`."""
        super().__init__()
        self.start_from_zero = transformer.config.start_from_zero_embedding
        self.embedding = _Embedding(transformer.target_embedding, layers, max_length)
        self.layers = nn.ModuleList(
            _DecoderLayer(cast(DecoderLayer, layer), layers) for layer in transformer.decoder.layers
        )
        self.final_norm = transformer.decoder.final_norm

    def forward(  # noqa: PLR0913, PLR0917 - one argument for each input of the graph
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        total_length: Tensor,
        encoder_attention_mask: Tensor,
        lane_heads: Tensor,
        row_heads: Tensor,
        caches: list[tuple[Tensor, Tensor, Tensor, Tensor]],
    ) -> tuple[Tensor, list[Tensor]]:
        """Give hidden states (R, 1, D), and keys and values of every layer."""
        x = self.embedding(input_ids, past_lengths, self.start_from_zero).unsqueeze(1)  # (R, 1, D)
        ones = ones_like_block(caches[0][3])  # of any layer's cross-attention values
        lanes = _Lanes(lane_heads, row_heads, _mask_bias(encoder_attention_mask), ones)
        presents: list[Tensor] = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, key, value = layer(x, past_lengths, total_length, lanes, cache)
            presents += [key, value]
        return self.final_norm(x), presents


class DecoderGraph(nn.Module):
    """One token of each row to the best candidates for the next, with the caches one token longer."""

    def __init__(
        self,
        transformer: Transformer,
        layers: LayerFactory,
        max_length: int,
        suppressed_ids: Sequence[int] = (),
    ) -> None:
        """Take the decoder of `transformer`; `suppressed_ids` are never candidates."""
        super().__init__()
        self.body = DecoderBody(transformer, layers, max_length)
        self.output_projection = layers.vocabulary(*vocabulary_table(transformer, suppressed_ids))

    def forward(  # noqa: PLR0913, PLR0917 - one argument for each input of the graph
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        total_length: Tensor,
        encoder_attention_mask: Tensor,
        lane_heads: Tensor,
        row_heads: Tensor,
        num_candidates: Tensor,
        edit_positions: Tensor,
        edit_scales: Tensor,
        edit_biases: Tensor,
        log_prob_rows: Tensor,
        caches: list[tuple[Tensor, Tensor, Tensor, Tensor]],
    ) -> tuple[Tensor, ...]:
        """Run one step; the arguments are described in `export.signature.decoder_inputs`."""
        hidden, presents = self.body(
            input_ids,
            past_lengths,
            total_length,
            encoder_attention_mask,
            lane_heads,
            row_heads,
            caches,
        )
        log_probs = self.output_projection(hidden).float().log_softmax(-1)
        edited = edit(reshape(log_probs, -1), edit_positions, edit_scales, edit_biases)
        size = log_probs.shape[-1]
        blocks = reshape(edited, -1, size // VOCAB_BLOCK, VOCAB_BLOCK)  # (R, V/64, 64)
        candidate_ids, candidate_log_probs = best_candidates(
            blocks, num_candidates, torch.tensor([size // VOCAB_BLOCK])
        )
        asked_for = reshape(take(blocks, log_prob_rows), -1, size)  # (M, V)
        return (candidate_ids, candidate_log_probs, asked_for, *presents)


def vocabulary_table(
    transformer: Transformer, suppressed_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Give the table of the output projection, (V, D), and its bias, (V,): -inf for what is never a candidate."""
    projection = transformer.output_projection
    bias = torch.full((padded_vocab_size(projection.out_features),), -math.inf)
    bias[: projection.out_features] = _bias_of(projection)
    bias[list(suppressed_ids)] = -math.inf
    return _padded_rows(projection.weight), bias


class _Embedding(nn.Module):
    """Token and position from tables: sines computed in a batch may depend on its size, a table cannot."""

    def __init__(self, source: InputEmbedding, layers: LayerFactory, max_length: int) -> None:
        super().__init__()
        self.tokens = layers.embedding(_padded_rows(source.weight))
        self.scale = source.scale
        self.norm = source.norm
        with torch.no_grad():
            self.position_table = nn.Parameter(source.positions(torch.arange(max_length)))

    def forward(self, ids: Tensor, positions: Tensor, start_from_zero: bool = False) -> Tensor:
        factor = torch.tensor(self.scale, dtype=self.position_table.dtype)
        if start_from_zero:
            factors = torch.stack([torch.zeros_like(factor), factor])
            factor = take(factors, positions.clamp(max=1))
        vectors = self.tokens(ids, factor)
        output: Tensor = self.norm(vectors + take(self.position_table, positions))
        return output


class _Lanes:
    """Rows and lanes of cross-attention, moved head by head; see `export/lanes.py`."""

    def __init__(self, lane_heads: Tensor, row_heads: Tensor, bias: Tensor, ones: Tensor) -> None:
        self.lane_heads = lane_heads
        self.row_heads = row_heads
        self.bias = bias  # (B, 1, 1, S)
        self.ones = ones  # (S, Dh)

    def fold(self, x: Tensor, head_size: int) -> Tensor:
        """Bring rows (R, 1, D) into lanes (B, H, J, Dh)."""
        return take(reshape(x, -1, head_size), self.lane_heads)

    def unfold(self, mixed: Tensor) -> Tensor:
        """Bring lanes (B, H, J, Dh) back to rows (R, 1, D)."""
        heads = take(reshape(mixed, -1, mixed.shape[3]), self.row_heads)  # (R, H, Dh)
        return reshape(heads, 0, 1, -1)


class _EncoderLayer(nn.Module):
    def __init__(self, source: EncoderLayer, layers: LayerFactory) -> None:
        super().__init__()
        attention = source.self_attention
        self.num_heads = attention.num_heads
        self.qkv = layers.parallel(*_qkv(attention, scale_query=True), source=attention.query_proj)
        self.output = _linear(attention.output_proj, layers)
        self.attention_sublayer = source.self_attention_sublayer
        self.feed_forward = _FeedForward(source.feed_forward, layers)
        self.feed_forward_sublayer = source.feed_forward_sublayer

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attention_sublayer(x, lambda y: self._attend(y, bias))
        output: Tensor = self.feed_forward_sublayer(x, self.feed_forward)
        return output

    def _attend(self, x: Tensor, bias: Tensor) -> Tensor:
        query, key, value = (_split_heads(part, self.num_heads) for part in self.qkv(x))
        scores = score_heads(query, key) + bias  # (B, H, S, S)
        ones = torch.ones(x.shape[0], value.shape[3], dtype=value.dtype)
        weights, sums = _exponents(scores, ones)
        mixed = mix_heads(weights, value) / sums  # (B, H, S, Dh)
        output: Tensor = self.output(reshape(mixed.permute(2, 0, 1, 3), 0, 0, -1))  # (S, B, D)
        return output


class _DecoderLayer(nn.Module):
    def __init__(self, source: DecoderLayer, layers: LayerFactory) -> None:
        super().__init__()
        self.num_heads = source.self_attention.num_heads
        self.head_size = source.self_attention.head_size
        weights, biases = _qkv(source.self_attention, scale_query=False)
        self.qkv = layers.linear(
            torch.cat(weights), torch.cat(biases), source=source.self_attention.query_proj
        )
        self.key_scales = layers.cache_scales(source.self_attention.key_proj)
        self.value_scales = layers.cache_scales(source.self_attention.value_proj)
        self.self_output = _linear(source.self_attention.output_proj, layers)
        self.self_sublayer = source.self_attention_sublayer
        cross = source.cross_attention
        self.cross_query = _linear(cross.query_proj, layers, factor=cross.head_size**-0.5)
        self.cross_output = _linear(cross.output_proj, layers)
        self.cross_sublayer = source.cross_attention_sublayer
        self.feed_forward = _FeedForward(source.feed_forward, layers)
        self.feed_forward_sublayer = source.feed_forward_sublayer

    def forward(
        self,
        x: Tensor,
        past_lengths: Tensor,
        total_length: Tensor,
        lanes: _Lanes,
        cache: tuple[Tensor, Tensor, Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        self_key, self_value, cross_key, cross_value = cache
        presents: list[Tensor] = []

        def attend_self(y: Tensor) -> Tensor:
            mixed, *present = self._cached_attention(
                self.qkv(y), self_key, self_value, past_lengths, total_length
            )
            presents.extend(present)
            output: Tensor = self.self_output(mixed)
            return output

        def attend_source(y: Tensor) -> Tensor:
            query = lanes.fold(self.cross_query(y), self.head_size)
            scores = query @ cross_key + lanes.bias  # (B, H, J, S)
            weights, sums = _exponents(scores, lanes.ones)
            mixed = (weights @ cross_value) / sums
            output: Tensor = self.cross_output(lanes.unfold(mixed))
            return output

        x = self.self_sublayer(x, attend_self)
        x = self.cross_sublayer(x, attend_source)
        x = self.feed_forward_sublayer(x, self.feed_forward)
        return x, presents[0], presents[1]

    def _cached_attention(
        self, qkv: Tensor, key: Tensor, value: Tensor, past_lengths: Tensor, total_length: Tensor
    ) -> Sequence[Tensor]:
        """Write the new key and value behind the past, in place, and attend to both."""
        inputs: list[Tensor | None] = [qkv, None, None, key, value, past_lengths, total_length]
        attributes: dict[str, int | str] = {
            "num_heads": self.num_heads,
            "kv_num_heads": self.num_heads,
            "do_rotary": 0,
        }
        if self.key_scales is not None and self.value_scales is not None:
            inputs += [*_NO_SUCH_INPUTS, self.key_scales, self.value_scales]
            attributes |= {"kv_cache_bit_width": 8}
            attributes |= dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL")
        outputs: Sequence[Tensor] = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            inputs,
            {**attributes},
            dtypes=(qkv.dtype, key.dtype, value.dtype),
            shapes=((qkv.shape[0], 1, qkv.shape[2] // 3), key.shape, value.shape),
            version=1,
        )
        return outputs


class _FeedForward(nn.Module):
    def __init__(self, source: FeedForward, layers: LayerFactory) -> None:
        super().__init__()
        self.linear_in = _linear(source.linear_in, layers)
        self.activation = None if source.activation is F.relu else source.activation
        self.linear_out = layers.linear(
            source.linear_out.weight,
            _bias_of(source.linear_out),
            rectify=self.activation is None,
            source=source.linear_out,
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.linear_in(x)
        output: Tensor = self.linear_out(self.activation(inner) if self.activation else inner)
        return output


def _padded_rows(table: Tensor) -> Tensor:
    missing = padded_vocab_size(table.shape[0]) - table.shape[0]
    return nn.functional.pad(table.detach(), (0, 0, 0, missing)) if missing else table.detach()


def _linear(source: nn.Linear, layers: LayerFactory, factor: float = 1.0) -> nn.Module:
    return layers.linear(source.weight.detach() * factor, _bias_of(source) * factor, source=source)


def _qkv(attention: MultiHeadAttention, scale_query: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Give weights and biases of the three projections; the query's may take over the scale of the scores."""
    query, key, value = attention.query_proj, attention.key_proj, attention.value_proj
    factor = attention.head_size**-0.5 if scale_query else 1.0
    weights = [query.weight.detach() * factor, key.weight.detach(), value.weight.detach()]
    return weights, [_bias_of(query) * factor, _bias_of(key), _bias_of(value)]


def _bias_of(source: nn.Linear) -> Tensor:
    return torch.zeros(source.out_features) if source.bias is None else source.bias.detach()


def _split_heads(x: Tensor, num_heads: int) -> Tensor:
    return reshape(x, 0, 0, num_heads, x.shape[-1] // num_heads)


def _mask_bias(mask: Tensor) -> Tensor:
    """Give 0 where a position may be attended, else a very negative number, (B, 1, 1, S) for (B, S)."""
    return reshape(take(torch.tensor([[_MASKED], [0.0]]), mask), 0, 1, 1, -1)


def _exponents(scores: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
    """Give numerators and denominators of a softmax whose bits do not depend on how far a sentence is padded.

    A library softmax is free to add its terms in an order that depends on their number. A matrix product adds
    them one after the other, and the zeros of padding come last: so the sum is a product as well.

    Args:
        scores: In float32. Shape (..., S).
        ones: As wide as what is divided by the denominators, so that nothing has to be spread. Shape (S, Dh).
    """
    weights = (scores - scores.amax(-1, keepdim=True)).exp().to(ones.dtype)
    return weights, weights @ ones
