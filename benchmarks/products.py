"""The matrix products with weights that a translation needs: shapes and how often."""

from __future__ import annotations

from collections import Counter

from model.config import TransformerConfig

__all__ = ["Shape", "decoder_products", "encoder_products", "num_operations"]

Shape = tuple[int, int, int]
"""(M, K, N): M rows of K numbers times a matrix with N columns."""


def encoder_products(config: TransformerConfig, num_tokens: int) -> Counter[Shape]:
    """Of one run of the encoder over so many source tokens, the projections for cross-attention included."""
    width, inner = config.d_model, config.d_ff
    products: Counter[Shape] = Counter()
    products[num_tokens, width, 3 * width] += config.encoder_layers
    products[num_tokens, width, width] += config.encoder_layers
    products[num_tokens, width, inner] += config.encoder_layers
    products[num_tokens, inner, width] += config.encoder_layers
    products[num_tokens, width, 2 * width] += config.decoder_layers
    return products


def decoder_products(config: TransformerConfig, num_rows: int) -> Counter[Shape]:
    """Of one step of so many rows, the vocabulary included."""
    width, inner = config.d_model, config.d_ff
    products: Counter[Shape] = Counter()
    products[num_rows, width, 3 * width] += config.decoder_layers
    products[num_rows, width, width] += 3 * config.decoder_layers
    products[num_rows, width, inner] += config.decoder_layers
    products[num_rows, inner, width] += config.decoder_layers
    products[num_rows, width, config.target_vocab_size] += 1
    return products


def num_operations(shape: Shape) -> int:
    """Multiplications and additions."""
    rows, inner, columns = shape
    return 2 * rows * inner * columns
