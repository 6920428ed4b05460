"""The encoder stack (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.config import TransformerConfig
from model.feed_forward import FeedForward
from model.sublayer import Sublayer, create_final_norm


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward: two sub-layers (section 3.1, "Encoder")."""

    def __init__(self, config: TransformerConfig) -> None:
        """Create both sub-layers."""
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.d_model, config.num_heads, bias=config.attention_bias
        )
        self.self_attention_sublayer = Sublayer(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.feed_forward_sublayer = Sublayer(config)

    def forward(self, x: Tensor, mask: Tensor, trace: list[Tensor] | None = None) -> Tensor:
        """Let source positions see each other.

        Args:
            x: Source positions. Shape (B, S, D).
            mask: True at real tokens. Shape (B, 1, 1, S).
            trace: When given, the attention weights (B, H, S, S) are appended to it.

        Returns:
            Source positions. Shape (B, S, D).
        """
        x = self.self_attention_sublayer(x, lambda y: self.self_attention(y, y, y, mask, trace))
        output: Tensor = self.feed_forward_sublayer(x, self.feed_forward)
        return output


class Encoder(nn.Module):
    """A stack of encoder layers (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        """Create `config.encoder_layers` layers."""
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.final_norm = create_final_norm(config)

    def forward(self, x: Tensor, mask: Tensor, trace: list[Tensor] | None = None) -> Tensor:
        """Run every layer; arguments as in `EncoderLayer`, one entry of `trace` a layer."""
        for layer in self.layers:
            x = layer(x, mask, trace)
        output: Tensor = self.final_norm(x)
        return output
