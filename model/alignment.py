"""Which source words a translation looked at: cross-attention as numbers and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from model.tokenizer import Tokenizer
from model.transformer import Transformer

_INCHES_A_PIECE = 0.28
_MARGIN_INCHES = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How much each target piece looked at each source piece while it was predicted."""

    source_pieces: list[str]
    """S pieces, EOS included."""

    target_pieces: list[str]
    """T pieces, EOS included where there is one."""

    weights: Tensor
    """Mean over the heads of all decoder layers; every row sums to 1. Shape (T, S)."""


@torch.inference_mode()
def align(
    model: Transformer, tokenizer: Tokenizer, source_ids: Sequence[int], target_ids: Sequence[int]
) -> Alignment:
    """Run a pair through the model once and collect the cross-attention."""
    device = next(model.parameters()).device
    source = torch.tensor([list(source_ids)], device=device)
    target = torch.tensor([list(target_ids)], device=device)
    mask = torch.ones_like(source, dtype=torch.bool)
    maps = model.eval().attention_maps(source, mask, model.shift_right(target))
    layers = torch.stack(maps.cross)  # (L, 1, H, T, S)
    return Alignment(
        source_pieces=tokenizer.source_pieces(source_ids),
        target_pieces=tokenizer.target_pieces(target_ids),
        weights=layers.mean(dim=(0, 1, 2)).cpu(),
    )


def draw_alignment(alignment: Alignment, picture: Path) -> None:
    """Draw the sources along the top and the target down the side, as a PNG; dark is much."""
    height, width = alignment.weights.shape
    size = (
        _MARGIN_INCHES + _INCHES_A_PIECE * width,
        _MARGIN_INCHES + _INCHES_A_PIECE * height,
    )
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.imshow(alignment.weights.numpy(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
    axes.set_xticks(range(width), _literal(alignment.source_pieces), rotation=90)
    axes.set_yticks(range(height), _literal(alignment.target_pieces))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    figure.savefig(picture, format="png", dpi=120)


def _literal(pieces: Sequence[str]) -> list[str]:
    """Keep dollar signs from beginning a formula."""
    return [piece.replace("$", r"\$") for piece in pieces]
