"""The decoder stack, whole sequences or one token at a time (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.config import TransformerConfig
from model.feed_forward import FeedForward
from model.sublayer import Sublayer, create_final_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """Keys and values of one decoder layer, projected once and kept."""

    self_keys: Tensor
    """Of every token so far. Shape (R, H, T, Dh)."""

    self_values: Tensor
    """Of every token so far. Shape (R, H, T, Dh)."""

    cross_keys: Tensor
    """Of the source. Shape (R, H, S, Dh)."""

    cross_values: Tensor
    """Of the source. Shape (R, H, S, Dh)."""

    def gather(self, rows: Tensor) -> LayerCache:
        """Give the cache whose row r is this one's row `rows[r]`."""
        return LayerCache(
            self_keys=self.self_keys[rows],
            self_values=self.self_values[rows],
            cross_keys=self.cross_keys[rows],
            cross_values=self.cross_values[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderCache:
    """Everything that a decoder step needs of the past: a value, never changed in place.

    Rows are hypotheses, all of the same age. `gather` follows a beam: with rows [a, b] and moves [1, 1] both rows of
    the new cache are b, and the old cache still holds [a, b].
    """

    layers: tuple[LayerCache, ...]
    """One for each decoder layer."""

    source_mask: Tensor
    """True at real source tokens. Shape (R, S)."""

    @property
    def length(self) -> int:
        """Tokens decoded so far."""
        return self.layers[0].self_keys.shape[2]

    def gather(self, rows: Tensor) -> DecoderCache:
        """Give the cache whose row r is this one's row `rows[r]`; rows may repeat, vanish or move.

        Args:
            rows: Indices of rows. Shape (R',).
        """
        layers = tuple(layer.gather(rows) for layer in self.layers)
        return DecoderCache(layers=layers, source_mask=self.source_mask[rows])


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention, feed-forward: three sub-layers (section 3.1, "Decoder")."""

    def __init__(self, config: TransformerConfig) -> None:
        """Create the three sub-layers."""
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.d_model, config.num_heads, bias=config.attention_bias
        )
        self.self_attention_sublayer = Sublayer(config)
        self.cross_attention = MultiHeadAttention(
            config.d_model, config.num_heads, bias=config.attention_bias
        )
        self.cross_attention_sublayer = Sublayer(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.feed_forward_sublayer = Sublayer(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: Tensor,
        cross_mask: Tensor,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Transform all target positions at once.

        Args:
            x: Target positions. Shape (B, T, D).
            memory: Encoder output. Shape (B, S, D).
            self_mask: Which target positions each may see. Shape (1, 1, T, T).
            cross_mask: True at real source tokens. Shape (B, 1, 1, S).
            trace: When given, self and cross weights (B, H, T, T) and (B, H, T, S) are appended.

        Returns:
            Target positions. Shape (B, T, D).
        """
        x = self.self_attention_sublayer(
            x, lambda y: self.self_attention(y, y, y, self_mask, trace)
        )
        return self.after_self_attention(
            x, self.cross_attention.project_keys_values(memory, memory), cross_mask, trace
        )

    def after_self_attention(
        self,
        x: Tensor,
        cross_keys_values: tuple[Tensor, Tensor],
        cross_mask: Tensor,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Run the second and third sub-layer, which whole sequences and single steps share.

        Args:
            x: Output of the first sub-layer. Shape (R, T, D).
            cross_keys_values: Projected source, each of shape (R, H, S, Dh).
            cross_mask: True at real source tokens. Shape (R, 1, 1, S).
            trace: When given, the cross weights (R, H, T, S) are appended to it.

        Returns:
            Output of the layer. Shape (R, T, D).
        """
        keys, values = cross_keys_values
        x = self.cross_attention_sublayer(
            x, lambda y: self.cross_attention.attend(y, keys, values, cross_mask, trace)
        )
        output: Tensor = self.feed_forward_sublayer(x, self.feed_forward)
        return output

    def start_cache(self, memory: Tensor) -> LayerCache:
        """Project the source once; no target token yet.

        Args:
            memory: Encoder output. Shape (R, S, D).
        """
        keys, values = self.cross_attention.project_keys_values(memory, memory)
        nothing = keys[:, :, :0]  # (R, H, 0, Dh)
        return LayerCache(
            self_keys=nothing, self_values=nothing, cross_keys=keys, cross_values=values
        )

    def step(self, x: Tensor, cache: LayerCache, cross_mask: Tensor) -> tuple[Tensor, LayerCache]:
        """Transform one new position of each row.

        Args:
            x: The new position. Shape (R, 1, D).
            cache: The past of this layer.
            cross_mask: True at real source tokens. Shape (R, 1, 1, S).

        Returns:
            The position's output, shape (R, 1, D), and the cache one token longer.
        """
        grown = cache

        def attend(y: Tensor) -> Tensor:
            nonlocal grown
            key, value = self.self_attention.project_keys_values(y, y)  # (R, H, 1, Dh)
            grown = LayerCache(
                self_keys=torch.cat((cache.self_keys, key), dim=2),
                self_values=torch.cat((cache.self_values, value), dim=2),
                cross_keys=cache.cross_keys,
                cross_values=cache.cross_values,
            )
            return self.self_attention.attend(y, grown.self_keys, grown.self_values)

        x = self.self_attention_sublayer(x, attend)
        cross = (cache.cross_keys, cache.cross_values)
        return self.after_self_attention(x, cross, cross_mask), grown


class Decoder(nn.Module):
    """A stack of decoder layers (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        """Create `config.decoder_layers` layers."""
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.final_norm = create_final_norm(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: Tensor,
        cross_mask: Tensor,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Run every layer; arguments as in `DecoderLayer`, two entries of `trace` a layer."""
        for layer in self.layers:
            x = layer(x, memory, self_mask, cross_mask, trace)
        output: Tensor = self.final_norm(x)
        return output

    def start_cache(self, memory: Tensor, source_mask: Tensor) -> DecoderCache:
        """Project the source for every layer.

        Args:
            memory: Encoder output. Shape (R, S, D).
            source_mask: True at real source tokens. Shape (R, S).
        """
        layers = tuple(_decoder_layer(layer).start_cache(memory) for layer in self.layers)
        return DecoderCache(layers=layers, source_mask=source_mask)

    def step(self, x: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """Run every layer on one new position of each row.

        Args:
            x: The embedded new token. Shape (R, 1, D).
            cache: The past.

        Returns:
            The hidden state, shape (R, 1, D), and the cache one token longer.
        """
        cross_mask = cache.source_mask[:, None, None, :]
        layers = []
        for layer, past in zip(self.layers, cache.layers, strict=True):
            x, grown = _decoder_layer(layer).step(x, past, cross_mask)
            layers.append(grown)
        output: Tensor = self.final_norm(x)
        return output, DecoderCache(layers=tuple(layers), source_mask=cache.source_mask)


def _decoder_layer(module: nn.Module) -> DecoderLayer:
    assert isinstance(module, DecoderLayer)
    return module
