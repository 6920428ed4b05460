"""Graphs against the torch model, with the runtime's own operators played by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from export.calibration import measure_ranges
from export.graphs import DecoderGraph, EncoderGraph
from export.lanes import place_heads
from export.layers import FloatLayers, LayerFactory
from export.quantize import Int8Layers
from export.signature import padded_vocab_size
from export.smoothing import smooth
from model.transformer import Transformer
from tests import eager_operators
from tests.tiny_models import make_model

VOCAB = 130
SOURCE = torch.tensor([[5, 6, 7, 2, 0, 0], [9, 8, 2, 0, 0, 0], [4, 5, 6, 7, 8, 2]])
LENGTHS = (4, 3, 6)
MASK = (torch.arange(6) < torch.tensor(LENGTHS)[:, None]).long()
CAPACITY = 9
LANE_ROWS = np.array([[0, 0], [1, 0], [2, 1]])
ROW_LANES = np.array([0, 2, 4])

CONFIGS: dict[str, dict[str, Any]] = {
    "the paper": {},
    "marian": {
        "start_from_zero_embedding": True,
        "positional_encoding": "sinusoidal_halves",
        "output_bias": True,
        "norm_eps": 1e-9,
    },
    "pre-norm": {"norm_order": "pre", "final_norm": True, "embedding_norm": True},
    "learned positions": {
        "positional_encoding": "learned",
        "position_offset": 2,
        "max_positions": 32,
        "tie_embeddings": "none",
    },
    "hugging face": {
        "positional_encoding": "sinusoidal_halves",
        "position_exponent": "half",
        "tie_embeddings": "decoder",
        "activation": "silu",
        "scale_embeddings": False,
    },
    "no biases": {"attention_bias": False, "activation": "gelu"},
}


@pytest.fixture(autouse=True)
def runtime_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx.ops, "symbolic", eager_operators.symbolic)
    monkeypatch.setattr(torch.onnx.ops, "symbolic_multi_out", eager_operators.symbolic_multi_out)


def make_two_layers(**fields: Any) -> Transformer:
    return make_model(
        source_vocab_size=VOCAB,
        target_vocab_size=VOCAB,
        encoder_layers=2,
        decoder_layers=2,
        **fields,
    )


def place(lane_rows: np.ndarray, row_lanes: np.ndarray, rows: Rows) -> tuple[Tensor, ...]:
    """Places of heads, as the graph reads them."""
    return tuple(map(torch.from_numpy, place_heads(lane_rows, row_lanes, rows.caches[0].shape[1])))


class Rows:
    """Three rows of three sentences that a decoder graph takes step by step; `repeat` gives each sentence more rows."""

    def __init__(
        self,
        model: Transformer,
        layers: LayerFactory,
        suppressed: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ):
        self.graph = DecoderGraph(model, layers, CAPACITY, suppressed)
        self.cross = EncoderGraph(model, layers, 6)(SOURCE, MASK)
        config = model.config
        size = (3, config.num_heads, CAPACITY, config.head_size)
        self.caches = [torch.full(size, 99, dtype=dtype) for _ in range(2 * config.decoder_layers)]
        self.lengths = torch.zeros(3, dtype=torch.int32)

    def step(
        self,
        token_ids: Tensor,
        edits: tuple[tuple[int, int, float, float], ...] = (),
        count: int = 5,
    ) -> tuple[Tensor, Tensor, Tensor]:
        layers = range(len(self.caches) // 2)
        width = padded_vocab_size(VOCAB)
        outputs = self.graph(
            token_ids,
            self.lengths,
            torch.tensor(CAPACITY, dtype=torch.int32),
            MASK,
            *place(LANE_ROWS, ROW_LANES, self),
            torch.tensor([count]),
            torch.tensor([row * width + token for row, token, *_ in edits], dtype=torch.int64),
            torch.tensor([edit[2] for edit in edits]),
            torch.tensor([edit[3] for edit in edits]),
            torch.arange(3),
            [(*self.caches[2 * i : 2 * i + 2], *self.cross[2 * i : 2 * i + 2]) for i in layers],
        )
        ids, log_probs, everything, *self.caches = outputs
        self.lengths = self.lengths + 1
        return ids, log_probs, everything


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_graphs_compute_what_the_model_computes(name: str) -> None:
    model = make_two_layers(**CONFIGS[name])
    rows = Rows(model, FloatLayers())
    cache = model.start_cache(model.encode(SOURCE, MASK.bool()), MASK.bool())
    token_ids = torch.full((3,), model.config.bos_id)
    for _ in range(4):
        logits, cache = model.decode_step(token_ids, cache)
        expected = logits.log_softmax(-1)
        ids, _, everything = rows.step(token_ids)
        torch.testing.assert_close(everything[:, :VOCAB], expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(ids[:, 0], expected.argmax(-1))
        token_ids = ids[:, 0]


@pytest.mark.parametrize("how", ["random words", "text", "text, int8 caches"])
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_int8_graphs_stay_close_to_the_model(name: str, how: str) -> None:
    """The text is what is translated here: a random model gets other numbers from any other."""
    model = make_two_layers(**CONFIGS[name])
    text = [ids[:length].tolist() for ids, length in zip(SOURCE, LENGTHS, strict=True)]
    ranges = measure_ranges(model, text if "text" in how else ())
    smoothed = smooth(model, ranges)
    keeps_int8 = "caches" in how
    layers = Int8Layers(ranges.hidden, smoothed.fixed, smoothed.kept if keeps_int8 else None)
    dtype = torch.int8 if keeps_int8 else torch.float32
    rows = Rows(smoothed.transformer, layers, dtype=dtype)
    cache = model.start_cache(model.encode(SOURCE, MASK.bool()), MASK.bool())
    token_ids = torch.full((3,), model.config.bos_id)
    for _ in range(3):
        logits, cache = model.decode_step(token_ids, cache)
        _, _, everything = rows.step(token_ids)
        difference = (everything[:, :VOCAB] - logits.log_softmax(-1)).abs().max()
        assert 0 < difference < 0.1
        token_ids = logits.argmax(-1)


@torch.no_grad()
def test_candidates_are_the_best_words_in_order() -> None:
    rows = Rows(make_two_layers(), FloatLayers())
    for count in (1, 7, VOCAB):
        ids, log_probs, everything = rows.step(torch.tensor([3, 4, 5]), count=count)
        expected = everything.sort(dim=1, descending=True, stable=True)
        assert torch.equal(log_probs, expected.values[:, :count])
        assert torch.equal(ids, expected.indices[:, :count])


@torch.no_grad()
def test_suppressed_words_and_padding_of_the_vocabulary_are_impossible() -> None:
    for layers in (FloatLayers(), Int8Layers(4.0)):
        rows = Rows(make_two_layers(), layers, suppressed=(0, 1))
        _, _, everything = rows.step(torch.tensor([3, 4, 5]))
        assert everything.shape == (3, padded_vocab_size(VOCAB))
        impossible = everything == -torch.inf
        assert impossible.any(0).nonzero().flatten().tolist() == [0, 1, *range(VOCAB, 192)]
        assert torch.allclose(everything.exp().sum(1), torch.ones(3))


@torch.no_grad()
def test_edits_change_single_log_probabilities_before_the_choice() -> None:
    token_ids = torch.tensor([3, 4, 5])
    plain_ids, _, plain = Rows(make_two_layers(), FloatLayers()).step(token_ids)
    best = int(plain_ids[1, 0])
    edits = ((1, best, 1.0, -torch.inf), (0, 9, 0.5, 0.0), (2, 77, 0.0, 3.0))
    ids, _, edited = Rows(make_two_layers(), FloatLayers()).step(token_ids, edits)
    assert ids[1, 0] == plain_ids[1, 1]
    assert ids[2, 0] == 77
    assert edited[2, 77] == 3.0
    assert edited[0, 9] == plain[0, 9] * 0.5
    changed = (edited != plain).nonzero().tolist()
    assert changed == [[0, 9], [1, best], [2, 77]]


@torch.no_grad()
def test_lanes_bring_each_row_to_its_own_sentence() -> None:
    rows = Rows(make_two_layers(), FloatLayers())
    _, _, everything = rows.step(torch.tensor([3, 3, 3]))
    assert not torch.allclose(everything[0], everything[1])
    swapped = Rows(make_two_layers(), FloatLayers())
    order = torch.tensor([2, 0, 1])
    swapped.cross = tuple(part[order] for part in swapped.cross)
    mask = MASK[order]
    outputs = swapped.graph(
        torch.tensor([3, 3, 3]),
        swapped.lengths,
        torch.tensor(CAPACITY, dtype=torch.int32),
        mask,
        *place(np.array([[2, 2, 2], [0, 0, 1], [1, 1, 1]]), np.array([3, 6, 2]), swapped),
        torch.tensor([1]),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0),
        torch.zeros(0),
        torch.arange(3),
        [(*swapped.caches[2 * i : 2 * i + 2], *swapped.cross[2 * i : 2 * i + 2]) for i in range(2)],
    )
    torch.testing.assert_close(outputs[2], everything)
