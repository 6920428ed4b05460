"""The teacher: a Firefox Translations "tiny" model, whose decoder has a recurrent cell where ours has self-attention.

Encoder, cross-attention, feed-forward and norms are those of a Post-LN Transformer, so the teacher is built from the
same classes as the student. Only the cell (SSRU: Kim et al. 2019, "From Research to Production and Back") is its own.
It exists for training: nothing that is served contains it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.checkpoint import load_weights
from model.config import TransformerConfig
from model.decoder import DecoderLayer
from model.errors import CheckpointError
from model.masks import key_mask
from model.recipes.marian_format import load_marian_tensors
from model.transformer import Transformer

Tensors = dict[str, NDArray[np.float32]]


class RecurrentCell(nn.Module):
    """f_t = sigmoid(x_t Wf + bf); c_t = f_t * c_{t-1} + (1 - f_t) * (x_t W); output relu(c_t); c_0 = 0."""

    def __init__(self, d_model: int) -> None:
        """Create both projections."""
        super().__init__()
        self.candidate_proj = nn.Linear(d_model, d_model, bias=False)
        self.forget_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Run over a whole sequence.

        Args:
            x: Target positions. Shape (B, T, D).

        Returns:
            The cell's outputs. Shape (B, T, D).
        """
        forget = torch.sigmoid(self.forget_proj(x)).float()  # (B, T, D)
        fresh = (1.0 - forget) * self.candidate_proj(x).float()
        state = torch.zeros_like(fresh[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = torch.addcmul(fresh[:, step], forget[:, step], state)
            states.append(state)
        return torch.relu(torch.stack(states, dim=1))


class Teacher(nn.Module):
    """The Firefox model: a `Transformer` whose decoder's self-attention is replaced by recurrent cells."""

    def __init__(self, config: TransformerConfig) -> None:
        """Create it with fresh weights; `load_teacher` fills them."""
        super().__init__()
        self.body = Transformer(config)
        self.cells = nn.ModuleList(RecurrentCell(config.d_model) for _ in self.body.decoder.layers)

    @property
    def config(self) -> TransformerConfig:
        """The shape that teacher and student share."""
        return self.body.config

    def encode(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """Read the source, as `Transformer.encode`."""
        return self.body.encode(source_ids, source_mask)

    def decode(
        self, target_inputs: Tensor, memory: Tensor, source_mask: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Run the decoder on given targets and show what its cells did.

        Args:
            target_inputs: Targets shifted right. Shape (B, T).
            memory: Encoder output. Shape (B, S, D).
            source_mask: True at real source tokens. Shape (B, S).

        Returns:
            The last hidden states, shape (B, T, D), and for each layer the input and the normed output of its first
            sub-layer, each of shape (B, T, D).
        """
        x = self.body.target_embedding(target_inputs)
        cross_mask = key_mask(source_mask)
        seen = []
        for layer, cell in zip(self.body.decoder.layers, self.cells, strict=True):
            assert isinstance(layer, DecoderLayer)
            mixed = layer.self_attention_sublayer(x, cell)
            seen.append((x, mixed))
            cross = layer.cross_attention.project_keys_values(memory, memory)
            x = layer.after_self_attention(mixed, cross, cross_mask)
        return x, seen


def teacher_config(tensors: Tensors) -> TransformerConfig:
    """Read the shape off the tensors of a Firefox model."""
    vocab_size, d_model = tensors["Wemb"].shape
    return TransformerConfig.from_preset(
        "tiny",
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        d_model=d_model,
        d_ff=tensors["encoder_l1_ffn_W1"].shape[1],
        encoder_layers=_count_layers(tensors, "encoder_l{}_ffn_W1"),
        decoder_layers=_count_layers(tensors, "decoder_l{}_ffn_W1"),
        norm_eps=1e-9,
        positional_encoding="sinusoidal_halves",
        position_exponent="half_minus_one",
        tie_embeddings="all",
        output_bias=True,
        start_from_zero_embedding=True,
        dropout=0.0,
        pad_id=0,  # the vocabulary has no padding piece; masks come from lengths
        bos_id=0,
        eos_id=0,
    )


def load_teacher(folder: Path) -> Teacher:
    """Read a Firefox model.

    Args:
        folder: Holds `model.*.bin`.

    Returns:
        The teacher, frozen and in evaluation mode.

    Raises:
        ModelError: The file is missing, broken or a model of another kind.
    """
    path = find_one(folder, "model.*.bin")
    tensors = load_marian_tensors(path)
    try:
        teacher = Teacher(teacher_config(tensors))
        values = _map_tensors(tensors, teacher.config)
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(f"{path} is no Firefox 'tiny' model: {error}") from error
    state = teacher.state_dict()
    fresh = {name for name in state if ".decoder.layers." in name and ".self_attention." in name}
    unfilled = sorted(set(state) - set(values) - fresh)
    if unfilled:
        raise CheckpointError(f"{path} lacks weights for: {', '.join(unfilled)}")
    load_weights(teacher, {**state, **values}, path)
    return teacher.eval().requires_grad_(False)


def create_student(teacher: Teacher) -> Transformer:
    """Start a Transformer from the teacher: all is copied but decoder self-attention.

    The value projection of that starts as the cell's candidate projection, the output projection as half the identity
    (the best linear stand-in for the cell's ReLU on a symmetric input); queries and keys are fresh.
    """
    student = Transformer(teacher.config)
    student.load_state_dict(teacher.body.state_dict())
    for layer, cell in zip(student.decoder.layers, teacher.cells, strict=True):
        assert isinstance(layer, DecoderLayer) and isinstance(cell, RecurrentCell)
        with torch.no_grad():
            layer.self_attention.value_proj.weight.copy_(cell.candidate_proj.weight)
            layer.self_attention.output_proj.weight.copy_(0.5 * torch.eye(teacher.config.d_model))
    return student


def find_one(folder: Path, pattern: str) -> Path:
    """Give the only file of `folder` that matches `pattern`, or say what is missing."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(
            f"{folder} must hold exactly one {pattern}, but holds {len(found)}; see the recipe's README for "
            "where the teacher comes from."
        )
    return found[0]


def _count_layers(tensors: Tensors, pattern: str) -> int:
    count = 0
    while pattern.format(count + 1) in tensors:
        count += 1
    return count


def _map_tensors(tensors: Tensors, config: TransformerConfig) -> dict[str, Tensor]:
    values: dict[str, NDArray[np.float32]] = {
        "body.source_embedding.tokens.weight": tensors["Wemb"],
        "body.target_embedding.tokens.weight": tensors["Wemb"],
        "body.output_projection.weight": tensors["Wemb"],
        "body.output_projection.bias": tensors["decoder_ff_logit_out_b"].reshape(-1),
    }
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for index in range(count):
            ours, theirs = f"body.{side}.layers.{index}", f"{side}_l{index + 1}"
            if side == "encoder":
                values.update(_attention(tensors, f"{ours}.self_attention", f"{theirs}_self"))
            else:
                values.update(_attention(tensors, f"{ours}.cross_attention", f"{theirs}_context"))
                values.update(_cell(tensors, f"cells.{index}", f"{theirs}_rnn"))
                norm = _norm(tensors, f"{ours}.self_attention_sublayer", f"{theirs}_rnn_ffn_ln")
                values.update(norm)
            values.update(_feed_forward(tensors, f"{ours}.feed_forward", f"{theirs}_ffn"))
    return {name: torch.from_numpy(np.array(value)) for name, value in values.items()}


def _linear(tensors: Tensors, ours: str, weight: str, bias: str | None) -> Tensors:
    values = {f"{ours}.weight": tensors[weight].T}  # Marian multiplies x W, torch x W^T
    if bias is not None:
        values[f"{ours}.bias"] = tensors[bias].reshape(-1)
    return values


def _norm(tensors: Tensors, ours: str, theirs: str) -> Tensors:
    return {
        f"{ours}.norm.weight": tensors[f"{theirs}_scale"].reshape(-1),
        f"{ours}.norm.bias": tensors[f"{theirs}_bias"].reshape(-1),
    }


def _attention(tensors: Tensors, ours: str, theirs: str) -> Tensors:
    values = _norm(tensors, f"{ours}_sublayer", f"{theirs}_Wo_ln")
    for role, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
        name = f"{ours}.{role}_proj"
        values.update(_linear(tensors, name, f"{theirs}_W{letter}", f"{theirs}_b{letter}"))
    return values


def _feed_forward(tensors: Tensors, ours: str, theirs: str) -> Tensors:
    return {
        **_linear(tensors, f"{ours}.linear_in", f"{theirs}_W1", f"{theirs}_b1"),
        **_linear(tensors, f"{ours}.linear_out", f"{theirs}_W2", f"{theirs}_b2"),
        **_norm(tensors, f"{ours}_sublayer", f"{theirs}_ffn_ln"),
    }


def _cell(tensors: Tensors, ours: str, theirs: str) -> Tensors:
    return {
        **_linear(tensors, f"{ours}.candidate_proj", f"{theirs}_W", None),
        **_linear(tensors, f"{ours}.forget_proj", f"{theirs}_Wf", f"{theirs}_bf"),
    }
