"""The one activation range that is fixed at export: that of the decoder's output, before the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from model.transformer import Transformer

__all__ = ["hidden_range"]

_SENTENCES = 64
_LENGTH = 24


@torch.no_grad()
def hidden_range(transformer: Transformer) -> float:
    """Find the largest magnitude in the decoder's output, over translations of made-up sentences.

    A LayerNorm stands before the vocabulary and bounds what comes out of it, so words drawn at random show the range
    as well as real text does, and no data is needed. Half of the targets are what the model says itself.

    Returns:
        The magnitude, reproducible for the same weights.
    """
    config = transformer.config
    generator = torch.Generator().manual_seed(0)

    def random_ids(vocab_size: int) -> Tensor:
        return torch.randint(vocab_size, (_SENTENCES, _LENGTH), generator=generator)

    source_mask = torch.ones(_SENTENCES, _LENGTH, dtype=torch.bool)
    memory = transformer.encode(random_ids(config.source_vocab_size), source_mask)
    targets = random_ids(config.target_vocab_size)
    targets[::2] = _continuations(transformer, memory[::2], source_mask[::2])
    inputs = transformer.shift_right(targets)
    return transformer.decode(inputs, memory, source_mask).abs().max().item()


def _continuations(transformer: Transformer, memory: Tensor, source_mask: Tensor) -> Tensor:
    """Follow the best word of every step, past the end of the sentence as well."""
    cache = transformer.start_cache(memory, source_mask)
    token_ids = torch.full((len(memory),), transformer.config.bos_id)
    chosen = []
    for _ in range(_LENGTH):
        logits, cache = transformer.decode_step(token_ids, cache)
        token_ids = logits.argmax(-1)
        chosen.append(token_ids)
    return torch.stack(chosen, dim=1)
