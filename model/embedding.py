"""From token ids to the vectors that the first layer reads (Vaswani et al. 2017, sections 3.4 and 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.positional_encoding import create_positional_encoding


class InputEmbedding(nn.Module):
    """Token embedding, scaled by sqrt(D), plus its position; optional norm; dropout."""

    def __init__(
        self, config: TransformerConfig, vocab_size: int, start_from_zero: bool = False
    ) -> None:
        """Create the table of `vocab_size` rows; with `start_from_zero` the token at position 0 counts as zero."""
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.positions = create_positional_encoding(config)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.start_from_zero = start_from_zero
        norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.norm: nn.Module = norm if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    @property
    def weight(self) -> Tensor:
        """The table of token vectors. Shape (V, D)."""
        return self.tokens.weight

    def forward(self, token_ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Embed tokens at their positions.

        Args:
            token_ids: Pieces. Shape (B, T).
            positions: Place of each token, counted from 0; 0 to T-1 unless given. Shape (B, T) or (T,).

        Returns:
            Input of the first layer. Shape (B, T, D).
        """
        if positions is None:
            positions = torch.arange(token_ids.shape[-1], device=token_ids.device)
        vectors = self.tokens(token_ids) * self.scale  # (B, T, D)
        if self.start_from_zero:
            # Marian has no beginning-of-sentence piece: its decoder starts from nothing at all.
            vectors = vectors * (positions > 0).unsqueeze(-1).to(vectors.dtype)
        embedded: Tensor = self.dropout(self.norm(vectors + self.positions(positions)))
        return embedded
