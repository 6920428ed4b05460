"""Where a token stands, as a vector (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.config import TransformerConfig

_LONGEST_PERIOD = 10000.0


class InterleavedSinusoids(nn.Module):
    """Sine on even, cosine on odd dimensions; pair i has frequency 10000^(-2i / D) (section 3.5)."""

    frequencies: Tensor

    def __init__(self, d_model: int, offset: int = 0) -> None:
        """Fix the frequencies; nothing is learned."""
        super().__init__()
        self.offset = offset
        exponents = torch.arange(d_model // 2, dtype=torch.float64) / (d_model // 2)
        self.register_buffer("frequencies", _frequencies(exponents), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Encode positions of any size.

        Args:
            positions: Places counted from 0. Shape (...).

        Returns:
            One vector for each, every number in [-1, 1]. Shape (..., D).
        """
        angles = (positions + self.offset).unsqueeze(-1) * self.frequencies  # (..., D/2)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # (..., D)


class HalvedSinusoids(nn.Module):
    """Sines in the first half, cosines in the second, as Marian and fairseq lay them out.

    They divide the exponent by D/2 - 1, so that the last period is exactly 10000; Hugging Face's copy of Marian divides
    by D/2.
    """

    frequencies: Tensor

    def __init__(self, d_model: int, offset: int = 0, divisor: int | None = None) -> None:
        """Fix the frequencies 10000^(-i / divisor); `divisor` is D/2 - 1 unless given."""
        super().__init__()
        self.offset = offset
        half = d_model // 2
        exponents = torch.arange(half, dtype=torch.float64) / max(divisor or half - 1, 1)
        self.register_buffer("frequencies", _frequencies(exponents), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Encode positions; shapes as in `InterleavedSinusoids`."""
        angles = (positions + self.offset).unsqueeze(-1) * self.frequencies  # (..., D/2)
        return torch.cat((angles.sin(), angles.cos()), dim=-1)  # (..., D)


class LearnedPositions(nn.Module):
    """A table with one trained vector for each position (section 3.5, table 3 row E)."""

    def __init__(self, d_model: int, max_positions: int, offset: int = 0) -> None:
        """Create a table of `max_positions` rows behind the `offset` that are never used."""
        super().__init__()
        self.offset = offset
        self.table = nn.Embedding(max_positions + offset, d_model)

    def forward(self, positions: Tensor) -> Tensor:
        """Look positions up; shapes as in `InterleavedSinusoids`, each position below `max_positions`."""
        vectors: Tensor = self.table(positions + self.offset)
        return vectors


def create_positional_encoding(config: TransformerConfig) -> nn.Module:
    """Create the encoding that `config.positional_encoding` names."""
    if config.positional_encoding == "learned":
        return LearnedPositions(config.d_model, config.max_positions, config.position_offset)
    if config.positional_encoding == "sinusoidal_halves":
        half = config.d_model // 2
        divisor = half if config.position_exponent == "half" else half - 1
        return HalvedSinusoids(config.d_model, config.position_offset, divisor)
    return InterleavedSinusoids(config.d_model, config.position_offset)


def _frequencies(exponents: Tensor) -> Tensor:
    return torch.pow(torch.tensor(_LONGEST_PERIOD, dtype=torch.float64), -exponents).float()
