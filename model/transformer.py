"""The whole model: embeddings, encoder, decoder, output projection (Vaswani et al. 2017, figure 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.decoder import Decoder, DecoderCache
from model.embedding import InputEmbedding
from model.encoder import Encoder
from model.masks import causal_mask, key_mask


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMaps:
    """Attention weights of every layer and head for one batch."""

    encoder: tuple[Tensor, ...]
    """Source to source, one for each encoder layer. Shape (B, H, S, S)."""

    decoder: tuple[Tensor, ...]
    """Target to target, one for each decoder layer. Shape (B, H, T, T)."""

    cross: tuple[Tensor, ...]
    """Target to source, one for each decoder layer. Shape (B, H, T, S)."""


class Transformer(nn.Module):
    """Encoder-decoder Transformer for translation (Vaswani et al. 2017, section 3)."""

    def __init__(self, config: TransformerConfig) -> None:
        """Create the model with fresh weights; tied matrices are one parameter."""
        super().__init__()
        self.config = config
        self.source_embedding = InputEmbedding(config, config.source_vocab_size)
        self.target_embedding = InputEmbedding(
            config, config.target_vocab_size, start_from_zero=config.start_from_zero_embedding
        )
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output_projection = nn.Linear(
            config.d_model, config.target_vocab_size, bias=config.output_bias
        )
        self._initialize()
        self._tie()

    def forward(self, source_ids: Tensor, source_mask: Tensor, target_inputs: Tensor) -> Tensor:
        """Score every next token of given targets (teacher forcing).

        Args:
            source_ids: Source pieces with EOS. Shape (B, S).
            source_mask: True at real tokens. Shape (B, S).
            target_inputs: Targets shifted right (see `shift_right`). Shape (B, T).

        Returns:
            Logits of the token after each input. Shape (B, T, V).
        """
        memory = self.encode(source_ids, source_mask)
        return self.project(self.decode(target_inputs, memory, source_mask))

    def encode(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """Read the source.

        Args:
            source_ids: Source pieces with EOS. Shape (B, S).
            source_mask: True at real tokens, at least one a row. Shape (B, S).

        Returns:
            Memory: what the decoder attends to. Shape (B, S, D).
        """
        memory: Tensor = self.encoder(self.source_embedding(source_ids), key_mask(source_mask))
        return memory

    def decode(self, target_inputs: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Run the decoder over whole targets; each position sees only what stands before it.

        Padding at the end of a target needs no mask: no real position sees it.

        Args:
            target_inputs: Targets shifted right. Shape (B, T).
            memory: Encoder output. Shape (B, S, D).
            source_mask: True at real source tokens. Shape (B, S).

        Returns:
            Hidden states, not yet projected to the vocabulary. Shape (B, T, D).
        """
        mask = causal_mask(target_inputs.shape[1], target_inputs.device)
        embedded = self.target_embedding(target_inputs)
        hidden: Tensor = self.decoder(embedded, memory, mask, key_mask(source_mask))
        return hidden

    def project(self, hidden: Tensor) -> Tensor:
        """Turn hidden states into logits (section 3.4).

        Args:
            hidden: Decoder output. Shape (..., D).

        Returns:
            Scores before softmax. Shape (..., V).
        """
        logits: Tensor = self.output_projection(hidden)
        return logits

    def shift_right(self, target_ids: Tensor) -> Tensor:
        """Give the decoder's inputs for given targets: BOS first, the last token left out.

        Args:
            target_ids: Targets that end in EOS. Shape (B, T).

        Returns:
            What stands before each target token. Shape (B, T).
        """
        first = torch.full_like(target_ids[:, :1], self.config.bos_id)
        return torch.cat((first, target_ids[:, :-1]), dim=1)

    def start_cache(self, memory: Tensor, source_mask: Tensor) -> DecoderCache:
        """Begin step by step decoding with one row a sentence.

        Args:
            memory: Encoder output. Shape (B, S, D).
            source_mask: True at real source tokens. Shape (B, S).

        Returns:
            A cache of no token yet; `gather` repeats its rows for beams.
        """
        return self.decoder.start_cache(memory, source_mask)

    def decode_step(self, token_ids: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """Read one token of each row and score the next.

        Args:
            token_ids: The last token of each row, BOS at first. Shape (R,).
            cache: The past of the same rows.

        Returns:
            Logits of the next token, shape (R, V), and the cache one token longer.
        """
        positions = torch.tensor([cache.length], device=token_ids.device)
        embedded = self.target_embedding(token_ids.unsqueeze(1), positions)  # (R, 1, D)
        hidden, grown = self.decoder.step(embedded, cache)
        return self.project(hidden.squeeze(1)), grown

    def attention_maps(
        self, source_ids: Tensor, source_mask: Tensor, target_inputs: Tensor
    ) -> AttentionMaps:
        """Collect the attention weights of every layer and head; arguments as in `forward`."""
        of_encoder: list[Tensor] = []
        of_decoder: list[Tensor] = []
        mask = key_mask(source_mask)
        memory = self.encoder(self.source_embedding(source_ids), mask, of_encoder)
        causal = causal_mask(target_inputs.shape[1], target_inputs.device)
        self.decoder(self.target_embedding(target_inputs), memory, causal, mask, of_decoder)
        return AttentionMaps(
            encoder=tuple(of_encoder),
            decoder=tuple(of_decoder[0::2]),
            cross=tuple(of_decoder[1::2]),
        )

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                # sqrt(D) times this is of unit variance, like the positions that are added to it.
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def _tie(self) -> None:
        if self.config.tie_embeddings == "all":
            self.target_embedding.tokens.weight = self.source_embedding.tokens.weight
        if self.config.tie_embeddings != "none":
            self.output_projection.weight = self.target_embedding.tokens.weight
