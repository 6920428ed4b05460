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
from export.signature import padded_vocab_size
from model.attention import MultiHeadAttention
from model.decoder import DecoderLayer
from model.embedding import InputEmbedding
from model.encoder import EncoderLayer
from model.feed_forward import FeedForward
from model.transformer import Transformer

__all__ = ["DecoderBody", "DecoderGraph", "EncoderGraph", "vocabulary_table"]

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
        """Encode a padded batch; see the class."""
        positions = torch.arange(input_ids.shape[1])
        x = self.embedding(input_ids, positions)  # (B, S, D)
        bias = _mask_bias(attention_mask)
        for layer in self.layers:
            x = layer(x, bias)
        outputs = []
        for index, part in enumerate(self.cross_projections(self.final_norm(x))):
            heads = _split_heads(part, self.num_heads)  # (B, S, H, Dh)
            order = (0, 2, 3, 1) if index % 2 == 0 else (0, 2, 1, 3)
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
        lane_rows: Tensor,
        row_lanes: Tensor,
        caches: list[tuple[Tensor, Tensor, Tensor, Tensor]],
    ) -> tuple[Tensor, list[Tensor]]:
        """Give hidden states (R, D), and keys and values of every layer."""
        x = self.embedding(input_ids, past_lengths, self.start_from_zero)  # (R, D)
        lanes = _Lanes(lane_rows, row_lanes, _mask_bias(encoder_attention_mask))
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
        lane_rows: Tensor,
        row_lanes: Tensor,
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
            lane_rows,
            row_lanes,
            caches,
        )
        log_probs = self.output_projection(hidden).float().log_softmax(-1)  # (R, V)
        log_probs = edit(log_probs, edit_positions, edit_scales, edit_biases)
        candidate_ids, candidate_log_probs = best_candidates(log_probs, num_candidates)
        asked_for = F.embedding(log_prob_rows, log_probs)  # (M, V)
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
        vectors = self.tokens(ids)
        if start_from_zero:
            factors = torch.tensor([[0.0], [self.scale]], dtype=vectors.dtype)
            vectors = vectors * F.embedding(positions.clamp(max=1), factors)
        else:
            vectors = vectors * self.scale
        output: Tensor = self.norm(vectors + F.embedding(positions, self.position_table))
        return output


class _Lanes:
    """Where the rows of each sentence stand in cross-attention, where they share keys and values.

    Queries of one sentence become one block of `J` lanes. With rows [a0, b0, b1] of sentences a and b
    and two lanes, `lane_rows` is [[0, 0], [1, 2]] (a's second lane is filled with any row) and
    `row_lanes` is [0, 2, 3].
    """

    def __init__(self, lane_rows: Tensor, row_lanes: Tensor, bias: Tensor) -> None:
        self.lane_rows = lane_rows
        self.row_lanes = row_lanes
        self.bias = bias  # (B, 1, 1, S)

    def fold(self, x: Tensor, num_heads: int) -> Tensor:
        """Bring rows (R, D) into lanes (B, H, J, Dh)."""
        return _split_heads(F.embedding(self.lane_rows, x), num_heads).transpose(1, 2)

    def unfold(self, mixed: Tensor) -> Tensor:
        """Bring lanes (B, H, J, Dh) back to rows (R, D)."""
        return F.embedding(self.row_lanes, mixed.transpose(1, 2).flatten(2).flatten(0, 1))


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
        query, key, value = (
            _split_heads(part, self.num_heads).transpose(1, 2)  # (B, H, S, Dh)
            for part in self.qkv(x)
        )
        mixed = _mix(query, key.transpose(2, 3), value, bias)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))  # (B, S, D)
        return output


class _DecoderLayer(nn.Module):
    def __init__(self, source: DecoderLayer, layers: LayerFactory) -> None:
        super().__init__()
        self.num_heads = source.self_attention.num_heads
        weights, biases = _qkv(source.self_attention, scale_query=False)
        self.qkv = layers.linear(
            torch.cat(weights), torch.cat(biases), source=source.self_attention.query_proj
        )
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
            output: Tensor = self.self_output(mixed.flatten(1))
            return output

        def attend_source(y: Tensor) -> Tensor:
            query = lanes.fold(self.cross_query(y), self.num_heads)
            mixed = _mix(query, cross_key, cross_value, lanes.bias)
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
        outputs: Sequence[Tensor] = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (qkv.unsqueeze(1), None, None, key, value, past_lengths, total_length),
            {"num_heads": self.num_heads, "kv_num_heads": self.num_heads, "do_rotary": 0},
            dtypes=(qkv.dtype, key.dtype, value.dtype),
            shapes=((qkv.shape[0], 1, qkv.shape[1] // 3), key.shape, value.shape),
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
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)


def _mask_bias(mask: Tensor) -> Tensor:
    bias = F.embedding(mask, torch.tensor([[_MASKED], [0.0]]))  # (B, S, 1)
    return bias.reshape(mask.shape[0], 1, 1, mask.shape[1])


def _mix(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """Attend with a softmax whose bits do not depend on how far a sentence is padded.

    A library softmax is free to add its terms in an order that depends on their number. A matrix product adds
    them one after the other, and the zeros of padding come last: so the sum is a product as well.

    Args:
        query: Scaled already. Shape (B, H, J, Dh).
        key: Shape (B, H, Dh, S).
        value: Shape (B, H, S, Dh).
        bias: 0 or a very negative number, in float32, and so are sums with it. Shape (B, 1, 1, S).
    """
    scores = query @ key + bias  # (B, H, J, S)
    weights = (scores - scores.amax(-1, keepdim=True)).exp().to(value.dtype)
    ones = torch.ones(
        value.shape[2], 2, dtype=value.dtype
    )  # one column alone would be another kernel, with another order
    return (weights @ value) / (weights @ ones)[..., :1]
