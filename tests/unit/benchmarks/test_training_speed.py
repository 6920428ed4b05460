"""The two models that are compared do the same work."""

import numpy as np
import pytest
import torch

from benchmarks.training_speed import TorchTransformer, make_corpus
from model.config import TransformerConfig
from model.data import BatchStream
from model.loss import translation_loss
from model.transformer import Transformer
from tests.tiny_models import make_config


def config() -> TransformerConfig:
    return make_config(source_vocab_size=40, target_vocab_size=40, dropout=0.0)


def test_both_models_have_the_same_parameters() -> None:
    sizes = [
        sorted(parameter.numel() for parameter in model.parameters())
        for model in (Transformer(config()), TorchTransformer(config()))
    ]
    assert sum(sizes[0]) == sum(sizes[1])


def test_padding_changes_neither_loss() -> None:
    corpus = make_corpus(6, 40)
    ours, theirs = Transformer(config()).eval(), TorchTransformer(config()).eval()
    for loss in (lambda batch: translation_loss(ours, batch, 0.1).loss, theirs):
        with torch.no_grad():
            together = loss(corpus.batch(np.arange(6)))
            alone = sum(loss(corpus.batch(np.array([number]))) for number in range(6))
        assert together.item() == pytest.approx(alone.item(), rel=1e-4)


def test_batches_hold_sentences_of_similar_length() -> None:
    batches = BatchStream(make_corpus(500, 40), batch_tokens=1000, seed=1).take(10)
    real = sum(batch.num_target_tokens for batch in batches)
    assert real > 0.8 * sum(batch.target_mask.numel() for batch in batches)
