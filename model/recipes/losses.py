"""What the student is asked for: first the teacher's cells, then its distribution of the next word.

Neither needs the softmax over the whole vocabulary, which is most of the cost of training a small model end to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from model.decoder import DecoderLayer
from model.masks import causal_mask
from model.recipes.pairs import PairBatch
from model.recipes.teacher import Teacher
from model.transformer import Transformer

_CPU_CHUNK_ROWS = 128
_GPU_CHUNK_ROWS = 8192


def cell_imitation_loss(teacher: Teacher, student: Transformer, batch: PairBatch) -> Tensor:
    """Compare each new self-attention with the cell that it replaces, on the teacher's own inputs.

    Args:
        teacher: Shows input and output of its cells.
        student: Only its decoder self-attentions get gradients that matter.
        batch: Pairs; only real target tokens count.

    Returns:
        Squared error relative to the variance of what is imitated, one number a layer. Shape (L,).
    """
    with torch.no_grad():
        memory = teacher.encode(batch.source_ids, batch.source_mask)
        inputs = student.shift_right(batch.target_ids)
        _, seen = teacher.decode(inputs, memory, batch.source_mask)
    mask = causal_mask(inputs.shape[1]).to(inputs.device)
    errors = []
    for layer, (x, wanted) in zip(_layers(student), seen, strict=True):
        got = layer.self_attention_sublayer(x, _self_attention(layer, mask))
        real, given = wanted[batch.target_mask].float(), got[batch.target_mask].float()  # (N, D)
        errors.append((given - real).square().mean() / real.var())
    return torch.stack(errors)


def distribution_loss(
    teacher: Teacher,
    student: Transformer,
    batch: PairBatch,
    words: tuple[Tensor, Tensor],
    share_encoder: bool,
) -> Tensor:
    """Kullback-Leibler divergence of the student's next-word distribution from the teacher's, over some words.

    The output projection, which both share, stays frozen.

    Args:
        teacher: Gives the distribution.
        student: Learns it.
        batch: Pairs; only real target tokens count.
        words: The vocabulary entries that are compared, and the logarithm of how many each stands for (see
            `choose_words`). Both of shape (V',).
        share_encoder: The student's encoder still is the teacher's: run it once, without gradients.

    Returns:
        Mean over real target tokens. Shape ().
    """
    with torch.no_grad():
        memory = teacher.encode(batch.source_ids, batch.source_mask)
        inputs = student.shift_right(batch.target_ids)
        wanted, _ = teacher.decode(inputs, memory, batch.source_mask)
    if not share_encoder:
        memory = student.encode(batch.source_ids, batch.source_mask)
    hidden = student.decode(inputs, memory, batch.source_mask)
    projection = student.output_projection
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    word_ids, log_counts = words
    weight = projection.weight[word_ids].to(dtype)
    bias = (projection.bias[word_ids] + log_counts).to(dtype)
    real, given = wanted[batch.target_mask].to(dtype), hidden[batch.target_mask].to(dtype)
    divergence: Tensor = _Divergence.apply(given, real, weight, bias)  # type: ignore[no-untyped-call]
    return divergence / given.shape[0]


def choose_words(
    batch: PairBatch, frequent: Tensor, vocab_size: int, num_random: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Choose the words that a batch is compared over.

    Those of its own targets and sources (names are copied), the most frequent ones, and random ones of the rest. The
    random ones stand for all of the rest: counted once each, they would leave the student free to move probability to
    words that are seldom looked at (measured: 2.5 % of it where the teacher has 1.6 %).

    Args:
        batch: Gives words, and the device of the result.
        frequent: Ids of the most frequent words. Shape (n,).
        vocab_size: V.
        num_random: How many of the rest are drawn.
        generator: Draws them, on the CPU, so that every device draws the same.

    Returns:
        Word ids without repetition, and the logarithm of how many words each stands for. Both of shape (V',).
    """
    device = batch.target_ids.device
    chosen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
    for ids in (batch.target_ids.flatten(), batch.source_ids.flatten(), frequent):
        chosen[ids] = True
    rest = (~chosen).nonzero().squeeze(1)
    drawn = rest[torch.randperm(len(rest), generator=generator)[:num_random].to(device)]
    log_counts = torch.zeros(vocab_size, device=device)
    log_counts[drawn] = math.log(max(len(rest), 1) / max(len(drawn), 1))
    chosen[drawn] = True
    return chosen.nonzero().squeeze(1), log_counts[chosen]


class _Divergence(torch.autograd.Function):
    """Sum over positions of KL(teacher || student) through one frozen projection.

    Loss and gradient come from the same pass over a few rows at a time, which stay in the processor's cache: with
    logits p (teacher) and q (student), the gradient on q is softmax(q) - softmax(p). Written out over whole batches,
    the softmax alone takes longer than the decoder.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        hidden: Tensor,
        wanted: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> Tensor:
        """Compare (N, D) hidden states through `weight` (V', D) and `bias` (V',)."""
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        gradient = torch.empty_like(hidden)
        chunk = _CPU_CHUNK_ROWS if hidden.device.type == "cpu" else _GPU_CHUNK_ROWS
        for begin in range(0, hidden.shape[0], chunk):
            rows = slice(begin, begin + chunk)
            student = F.linear(hidden[rows], weight, bias).float()  # (n, V')
            teacher = F.linear(wanted[rows], weight, bias).float()
            student_norm = student.logsumexp(-1, keepdim=True)
            teacher_norm = teacher.logsumexp(-1, keepdim=True)
            probs = (teacher - teacher_norm).exp_()
            total += (probs * teacher.sub_(student)).sum() + (student_norm - teacher_norm).sum()
            difference = student.sub_(student_norm).exp_().sub_(probs)
            gradient[rows] = difference.to(weight.dtype) @ weight
        ctx.save_for_backward(gradient)
        return total.float()

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *grad_outputs: Tensor
    ) -> tuple[Tensor, None, None, None]:
        """Only the student's hidden states get a gradient."""
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient * grad_outputs[0], None, None, None


def _self_attention(layer: DecoderLayer, mask: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda y: layer.self_attention(y, y, y, mask)


def _layers(student: Transformer) -> Iterator[DecoderLayer]:
    for layer in student.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        yield layer
