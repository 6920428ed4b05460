from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from model.alignment import Alignment, align, draw_alignment
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from tests.tiny_models import make_model, make_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="module")
def model() -> Transformer:
    return make_model(source_vocab_size=320, target_vocab_size=320, decoder_layers=2)


def test_every_target_piece_spreads_one_over_the_source(
    model: Transformer, tokenizer: Tokenizer
) -> None:
    source, target = tokenizer.encode_source("a small cat"), tokenizer.encode_target("um gato")
    alignment = align(model, tokenizer, source, target)
    assert alignment.weights.shape == (len(target), len(source))
    assert torch.allclose(alignment.weights.sum(dim=1), torch.ones(len(target)), atol=1e-5)
    assert "".join(alignment.source_pieces).replace("▁", " ").strip() == "a small cat</s>"
    assert "".join(alignment.target_pieces).replace("▁", " ").strip() == "um gato</s>"


def test_weights_are_the_mean_over_layers_and_heads(
    model: Transformer, tokenizer: Tokenizer
) -> None:
    source, target = tokenizer.encode_source("a cat"), tokenizer.encode_target("gato")
    ids = torch.tensor([source])
    maps = model.attention_maps(
        ids, torch.ones_like(ids, dtype=torch.bool), model.shift_right(torch.tensor([target]))
    )
    expected = sum(layer[0].mean(dim=0) for layer in maps.cross) / len(maps.cross)
    assert torch.allclose(align(model, tokenizer, source, target).weights, expected, atol=1e-6)


def test_picture_is_dark_where_the_weight_is(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    weights = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    pieces = {"source_pieces": ["▁a", "$x$"], "target_pieces": ["▁o", "b", "</s>"]}
    draw_alignment(Alignment(weights=weights, **pieces), path)
    picture = imread(path)[..., :3]
    blue = (picture[..., 2] - picture[..., 0]) > 0.2  # the dark end of the colours
    columns = blue.any(axis=0).nonzero()[0]
    assert blue.mean() > 0.05
    assert columns.max() < 0.85 * picture.shape[1]  # the right half of the field is white
