"""Even out the channels of an activation before it is rounded with one scale for all of them.

A channel is divided by a factor, and the weights that read it are multiplied by the same: the product stays what it is,
and the difficulty moves from activations, where a few channels are large, to weights, which have one scale a column
(SmoothQuant, Xiao et al. 2023, arXiv 2211.10438, section 4). Where a linear layer makes the activation, its own weights
take the division over, and it costs nothing (Nagel et al. 2019, arXiv 1906.04721, section 4.1).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.calibration import ActivationRanges
from model.attention import MultiHeadAttention
from model.decoder import DecoderLayer
from model.encoder import EncoderLayer
from model.feed_forward import FeedForward
from model.transformer import Transformer

__all__ = ["FixedInput", "Smoothed", "smooth"]

_STRENGTH = 0.75
"""How much of a channel's magnitude is moved into the weights: 0 nothing, 1 all of it."""
_LEAST = 1e-3
"""A channel's magnitude counts as at least this share of the largest."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedInput:
    """What goes into a layer whose input is rounded with a fixed scale."""

    largest: float
    """Magnitude, after the division."""
    factors: Tensor | None = None
    """What each channel is divided by first, (K,); None: nothing is left to divide."""


@dataclass(frozen=True, slots=True, eq=False)
class Smoothed:
    """A model whose activations are easier to round."""

    transformer: Transformer
    """Computes what the given one computes."""
    fixed: dict[nn.Module, FixedInput]
    """Of its layers whose inputs were measured."""
    kept: dict[nn.Module, Tensor]
    """Largest magnitude of each channel that its self-attention keeps, (D,), by the layer that makes it."""


@torch.no_grad()
def smooth(transformer: Transformer, ranges: ActivationRanges) -> Smoothed:
    """Give an equal model whose activations are easier to round, and how large they get."""
    smoothed = copy.deepcopy(transformer)
    modules = dict(smoothed.named_modules())
    magnitudes = {modules[name]: largest for name, largest in ranges.inputs.items()}
    kept = {modules[name]: largest for name, largest in ranges.kept.items()}
    fixed: dict[nn.Module, FixedInput] = {}
    for producer, consumer in _neighbours(smoothed):
        if consumer in magnitudes:
            factors = _factors(magnitudes[consumer], [consumer])
            producer.weight.div_(factors[:, None])
            if producer.bias is not None:
                producer.bias.div_(factors)
            consumer.weight.mul_(factors)
            if producer in kept:
                kept[producer] = kept[producer] / factors
            fixed[consumer] = FixedInput(_largest(magnitudes[consumer] / factors))
    for readers in _readers(smoothed):
        if readers[0] in magnitudes and readers[0] not in fixed:
            largest = magnitudes[readers[0]]
            factors = _factors(largest, readers)
            fixed |= {
                reader: FixedInput(_largest(largest / factors), factors) for reader in readers
            }
    return Smoothed(smoothed, fixed, kept)


def _factors(magnitudes: Tensor, readers: Sequence[nn.Linear]) -> Tensor:
    """What to divide each channel by, (K,); 1 in the geometric mean."""
    columns = torch.stack([reader.weight.abs().amax(0) for reader in readers]).amax(0)
    activations, weights = _at_least(magnitudes), _at_least(columns)
    factors = activations**_STRENGTH / weights ** (1 - _STRENGTH)
    return factors / factors.log().mean().exp()


def _at_least(magnitudes: Tensor) -> Tensor:
    least = max(_LEAST * magnitudes.max().item(), torch.finfo(torch.float32).tiny)
    return magnitudes.clamp(min=least)


def _largest(magnitudes: Tensor) -> float:
    return max(magnitudes.max().item(), torch.finfo(torch.float32).tiny)


def _attentions(transformer: Transformer) -> Iterator[MultiHeadAttention]:
    for encoder_layer in transformer.encoder.layers:
        yield cast(EncoderLayer, encoder_layer).self_attention
    for layer in transformer.decoder.layers:
        yield cast(DecoderLayer, layer).self_attention
        yield cast(DecoderLayer, layer).cross_attention


def _feed_forwards(transformer: Transformer) -> Iterator[FeedForward]:
    for layer in (*transformer.encoder.layers, *transformer.decoder.layers):
        yield cast(EncoderLayer | DecoderLayer, layer).feed_forward


def _neighbours(transformer: Transformer) -> Iterator[tuple[nn.Linear, nn.Linear]]:
    """Layers between which a channel may be scaled: mixing values is linear, and max(x, 0) keeps positive factors."""
    for attention in _attentions(transformer):
        yield attention.value_proj, attention.output_proj
    for network in _feed_forwards(transformer):
        if network.activation is F.relu:
            yield network.linear_in, network.linear_out


def _readers(transformer: Transformer) -> Iterator[list[nn.Linear]]:
    """Layers that read the same input, which is rounded once for all of them."""
    cross = [cast(DecoderLayer, layer).cross_attention for layer in transformer.decoder.layers]
    crossing = set(cross)
    yield [layer for attention in cross for layer in (attention.key_proj, attention.value_proj)]
    for attention in _attentions(transformer):
        if attention in crossing:
            yield [attention.query_proj]
        else:
            yield [attention.query_proj, attention.key_proj, attention.value_proj]
    for network in _feed_forwards(transformer):
        yield [network.linear_in]
        yield [network.linear_out]
