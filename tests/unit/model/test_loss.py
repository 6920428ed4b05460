from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from model.data import Batch, Corpus, Sentences
from model.loss import label_smoothed_cross_entropy, translation_loss
from tests.tiny_models import make_model


def _naive(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[float, float]:
    """Compute both sums word by word, from the definition: cross-entropy with the smoothed distribution."""
    loss = nll = 0.0
    for row, target in zip(logits.double(), targets.tolist(), strict=True):
        log_probs = row - row.exp().sum().log()
        wanted = torch.full_like(row, smoothing / len(row))
        wanted[target] += 1 - smoothing
        loss -= float((wanted * log_probs).sum())
        nll -= float(log_probs[target])
    return loss, nll


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_is_the_cross_entropy_with_the_smoothed_distribution(smoothing: float) -> None:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 11, generator=random) * 3
    targets = torch.randint(11, (7,), generator=random)
    loss, nll = label_smoothed_cross_entropy(logits, targets, smoothing)
    assert (float(loss), float(nll)) == pytest.approx(_naive(logits, targets, smoothing), rel=1e-5)


def test_uniform_prediction_costs_the_logarithm_of_the_vocabulary() -> None:
    loss, nll = label_smoothed_cross_entropy(torch.zeros(3, 8), torch.tensor([0, 4, 7]), 0.1)
    assert float(loss) == pytest.approx(3 * np.log(8))
    assert float(nll) == pytest.approx(3 * np.log(8))


def test_smoothed_gradient_vanishes_at_the_smoothed_distribution() -> None:
    logits = torch.log(torch.tensor([[0.925, 0.025, 0.025, 0.025]])).requires_grad_()
    loss, _ = label_smoothed_cross_entropy(logits, torch.tensor([0]), 0.1)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.abs().max() < 1e-6


def test_half_precision_logits_are_summed_in_float32() -> None:
    loss, nll = label_smoothed_cross_entropy(
        torch.randn(5, 9).bfloat16(), torch.zeros(5, dtype=torch.long), 0.1
    )
    assert loss.dtype == nll.dtype == torch.float32


def _make_batch(num_pairs: int = 3) -> Batch:
    sources = Sentences([[5, 6, 2], [7, 2], [8, 9, 10, 4, 2]][:num_pairs])
    targets = Sentences([[4, 2], [3, 5, 6, 2], [2]][:num_pairs])
    return Corpus(sources=sources, targets=targets, pad_id=2).batch(np.arange(num_pairs))


def test_padding_does_not_count() -> None:
    model = make_model()
    batch = _make_batch()
    whole = translation_loss(model, batch, 0.1)
    junk = dataclasses.replace(
        batch, target_ids=torch.where(batch.target_mask, batch.target_ids, 11)
    )
    assert translation_loss(model, junk, 0.1).loss.item() == whole.loss.item()


def test_padding_is_never_projected_to_the_vocabulary() -> None:
    model = make_model()
    shapes: list[tuple[int, ...]] = []
    model.output_projection.register_forward_hook(
        lambda _module, inputs, _output: shapes.append(tuple(inputs[0].shape))
    )
    sums = translation_loss(model, _make_batch(), 0.1)
    assert shapes == [(7, 16)]
    assert sums.num_tokens == 7


def test_batch_costs_what_its_sentences_cost_alone() -> None:
    model = make_model()
    corpus = Corpus(
        sources=Sentences([[5, 6, 2], [7, 2]]), targets=Sentences([[4, 2], [3, 5, 6, 2]]), pad_id=2
    )
    together = translation_loss(model, corpus.batch(np.array([0, 1])), 0.1)
    alone = [translation_loss(model, corpus.batch(np.array([i])), 0.1) for i in (0, 1)]
    assert together.loss.item() == pytest.approx(sum(sums.loss.item() for sums in alone), rel=1e-5)
    assert float(together.nll) == pytest.approx(sum(float(sums.nll) for sums in alone), rel=1e-5)
