"""The shape of a Transformer: every number and choice that a checkpoint depends on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args

Activation = Literal["relu", "silu", "gelu"]
NormOrder = Literal["post", "pre"]
PositionalEncodingKind = Literal["sinusoidal", "sinusoidal_halves", "learned"]
PositionExponent = Literal["half_minus_one", "half"]
EmbeddingTying = Literal["none", "decoder", "all"]

PRESETS: dict[str, dict[str, int]] = {
    "tiny": {
        "d_model": 256,
        "num_heads": 8,
        "d_ff": 1536,
        "encoder_layers": 6,
        "decoder_layers": 2,
    },
    "base": {
        "d_model": 512,
        "num_heads": 8,
        "d_ff": 2048,
        "encoder_layers": 6,
        "decoder_layers": 6,
    },
    "big": {
        "d_model": 1024,
        "num_heads": 16,
        "d_ff": 4096,
        "encoder_layers": 6,
        "decoder_layers": 6,
    },
}
"""Sizes by name: `base` and `big` are the paper's (table 3), `tiny` is deep-encoder, shallow-decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Everything that decides the parameters and the arithmetic of a `Transformer`."""

    source_vocab_size: int
    """Pieces in the source vocabulary."""

    target_vocab_size: int
    """Pieces in the target vocabulary; equal to the source's when they are tied (`tie_embeddings` = "all")."""

    d_model: int = 512
    """Width of every position's vector (D)."""

    num_heads: int = 8
    """Attention heads (H); must divide `d_model`."""

    d_ff: int = 2048
    """Inner width of the feed-forward network (F)."""

    encoder_layers: int = 6
    """Layers of the encoder."""

    decoder_layers: int = 6
    """Layers of the decoder."""

    activation: Activation = "relu"
    """Non-linearity of the feed-forward network."""

    norm_order: NormOrder = "post"
    """LayerNorm after the residual sum ("post", the paper) or before the sub-layer ("pre")."""

    norm_eps: float = 1e-5
    """Added to the variance in every LayerNorm."""

    final_norm: bool = False
    """One more LayerNorm after the last layer of encoder and decoder; Pre-LN stacks need it."""

    embedding_norm: bool = False
    """LayerNorm on the sum of token and position."""

    positional_encoding: PositionalEncodingKind = "sinusoidal"
    """Interleaved sines and cosines (the paper), sines then cosines in halves (Marian), or learned."""

    position_exponent: PositionExponent = "half_minus_one"
    """Frequency i of "sinusoidal_halves": 10000^(-i / (D/2 - 1)) as in Marian, or 10000^(-i / (D/2))."""

    position_offset: int = 0
    """Added to every position before it is encoded (fairseq's models begin at 2)."""

    max_positions: int = 1024
    """Rows of the table of learned positions; sinusoids have no limit."""

    tie_embeddings: EmbeddingTying = "all"
    """Which share one matrix: none, target and output ("decoder"), or source, target and output ("all")."""

    scale_embeddings: bool = True
    """Multiply token embeddings by sqrt(D) (section 3.4)."""

    attention_bias: bool = True
    """Biases in the four projections of attention."""

    output_bias: bool = False
    """A bias for each word of the target vocabulary."""

    start_from_zero_embedding: bool = False
    """The decoder's first input is the zero vector plus position 0, as in Marian; `bos_id` is then ignored."""

    dropout: float = 0.1
    """Dropped share of every sub-layer's output and of the embedded input, in training only."""

    pad_id: int = 0
    """Fills the places behind the end of short sequences."""

    bos_id: int = 1
    """First input of the decoder."""

    eos_id: int = 2
    """Ends every source and every target."""

    def __post_init__(self) -> None:
        for name in ("source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff"):
            _require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("encoder_layers", "decoder_layers", "max_positions"):
            _require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name, choices in _CHOICES.items():
            _require(getattr(self, name) in choices, name, f"one of {choices}", getattr(self, name))
        _require(
            self.d_model % self.num_heads == 0,
            "num_heads",
            "a divisor of `d_model`",
            self.num_heads,
        )
        even = self.positional_encoding == "learned" or self.d_model % 2 == 0
        _require(even, "d_model", "even for sinusoidal positions", self.d_model)
        _require(self.position_offset >= 0, "position_offset", "at least 0", self.position_offset)
        _require(0.0 <= self.dropout < 1.0, "dropout", "in [0, 1)", self.dropout)
        _require(self.norm_eps > 0.0, "norm_eps", "above 0", self.norm_eps)
        same_size = self.source_vocab_size == self.target_vocab_size
        _require(
            self.tie_embeddings != "all" or same_size,
            "target_vocab_size",
            'equal to `source_vocab_size` when `tie_embeddings` is "all"',
            self.target_vocab_size,
        )

    @classmethod
    def from_preset(cls, name: str, **fields: Any) -> TransformerConfig:
        """Take the sizes of a preset and everything else from `fields`.

        Args:
            name: A key of `PRESETS`.
            **fields: Further fields; they win over the preset's.
        """
        _require(name in PRESETS, "preset", f"one of {tuple(PRESETS)}", name)
        return cls.from_dict({**PRESETS[name], **fields})

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> TransformerConfig:
        """Read back what `to_dict` gave; a key that is no field is an error naming the nearest field."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in fields:
            if key not in known:
                nearest = get_close_matches(key, known, n=1)
                hint = f" Did you mean `{nearest[0]}`?" if nearest else ""
                raise ValueError(f"`{key}` is not a field of TransformerConfig.{hint}")
        missing = [
            name for name in ("source_vocab_size", "target_vocab_size") if name not in fields
        ]
        if missing:
            raise ValueError(f"TransformerConfig needs `{'` and `'.join(missing)}`.")
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Give every field by name, as plain values that JSON can hold."""
        return dataclasses.asdict(self)

    @property
    def head_size(self) -> int:
        """Width of one attention head (Dh)."""
        return self.d_model // self.num_heads


_CHOICES: dict[str, tuple[str, ...]] = {
    "activation": get_args(Activation),
    "norm_order": get_args(NormOrder),
    "positional_encoding": get_args(PositionalEncodingKind),
    "position_exponent": get_args(PositionExponent),
    "tie_embeddings": get_args(EmbeddingTying),
}


def _require(condition: bool, name: str, rule: str, value: object) -> None:
    if not condition:
        raise ValueError(f"`{name}` must be {rule}, but is {value!r}.")
