"""Builders of small Transformers and vocabularies with fixed random weights."""

from __future__ import annotations

from typing import Any

import torch

from model.config import TransformerConfig
from model.tokenizer import Tokenizer, train_tokenizer
from model.transformer import Transformer

SENTENCES = (
    "the committee decided on tuesday that the budget would not be approved",
    "a small cat sat on the red mat and looked at the rain",
    "o comité decidiu na terça-feira que o orçamento não seria aprovado",
    "um gato pequeno sentou-se no tapete vermelho e olhou para a chuva",
    "Numbers such as 1, 23 and 4567 are words too!",
)


def make_config(**fields: Any) -> TransformerConfig:
    """Give the configuration of a model of 16 dimensions."""
    sizes: dict[str, Any] = {
        "source_vocab_size": 12,
        "target_vocab_size": 12,
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    return TransformerConfig(**{**sizes, **fields})


def make_model(*, seed: int = 0, spread: float = 1.0, **fields: Any) -> Transformer:
    """Create a tiny model in evaluation mode; `spread` sharpens its distributions."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Transformer(make_config(**fields))
        with torch.no_grad():
            model.output_projection.weight.mul_(spread)
    return model.eval()


def make_tokenizer(**fields: Any) -> Tokenizer:
    """Train a vocabulary on a handful of sentences."""
    return Tokenizer(train_tokenizer(SENTENCES, **{"vocab_size": 320, **fields}))
