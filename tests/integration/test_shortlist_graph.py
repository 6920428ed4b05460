"""The decoder graph of a shortlist: a row gets the same bits whoever's words stand beside its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from export.bundle import (
    COLUMNS_FILE,
    DECODER_FILE,
    SHORTLIST_DECODER_FILE,
    Architecture,
    Limits,
    Precision,
)
from export.exporter import write_graphs
from export.runner import create_session
from export.signature import (
    COLUMN_BIASES,
    COLUMN_IDS,
    EDIT_BIASES,
    EDIT_POSITIONS,
    EDIT_SCALES,
    LIST_COLUMNS,
    LIST_IDS,
    LOG_PROB_ROWS,
    MIN_COLUMNS,
    ROW_SENTENCES,
    VOCAB_BLOCK,
)
from tests.decoder_steps import PASTS, Row, random_row, read_step, step_feeds
from tests.tiny_models import make_model

VOCAB_SIZE = 1500
SUPPRESSED = (1, 7)
SHAPE = Architecture(
    num_encoder_layers=1,
    num_decoder_layers=1,
    num_heads=8,
    head_size=32,
    d_model=256,
    vocab_size=VOCAB_SIZE,
)

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Graphs:
    decoder: Any
    shortlist_decoder: Any
    columns: Any

    def fetch(self, words: IntArray) -> dict[str, npt.NDArray[Any]]:
        names = [output.name for output in self.columns.get_outputs()]
        return dict(zip(names, self.columns.run(names, {COLUMN_IDS: words}), strict=True))


@pytest.fixture(scope="module")
def graphs_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Precision], Graphs]:
    @cache
    def create(precision: Precision) -> Graphs:
        directory: Path = tmp_path_factory.mktemp(f"graphs-{precision}")
        model = make_model(
            source_vocab_size=VOCAB_SIZE,
            target_vocab_size=VOCAB_SIZE,
            d_model=SHAPE.d_model,
            num_heads=SHAPE.num_heads,
            d_ff=256,
            output_bias=True,
            spread=6.0,
        )
        limits = Limits(max_source_tokens=256, max_target_tokens=256)
        write_graphs(model, directory, precision, limits, SUPPRESSED, with_shortlist=True)
        files = (DECODER_FILE, SHORTLIST_DECODER_FILE, COLUMNS_FILE)
        return Graphs(*(create_session(directory / name) for name in files))

    return create


@pytest.fixture(params=["float32", "int8"])
def graphs(request: pytest.FixtureRequest, graphs_of: Callable[[Precision], Graphs]) -> Graphs:
    return graphs_of(request.param)


def list_feeds(  # noqa: PLR0913 - all that a layout may differ in
    graphs: Graphs,
    lists: list[IntArray],
    rng: np.random.Generator,
    *,
    num_foreign: int = 0,
    spare_columns: int = 0,
    spare_blocks: int = 0,
    sentence_sizes: Sequence[int] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Lay lists out as the decoder reads them: the union in a random order, words of nobody among it."""
    foreign = rng.integers(0, VOCAB_SIZE, num_foreign)
    union = rng.permutation(np.unique(np.concatenate([*lists, foreign])))
    filler = int(rng.integers(0, len(union) + 1))
    ids = np.insert(union, filler, 0)
    feeds = graphs.fetch(ids)
    feeds[COLUMN_BIASES][filler] = -np.inf
    for name, tensor in feeds.items():
        least = max(MIN_COLUMNS, len(ids) + spare_columns)
        pad = [(0, 0)] * (tensor.ndim - 1) + [(0, least + -least % 64 - len(ids))]
        feeds[name] = np.pad(tensor, pad)
    column_of = np.full(VOCAB_SIZE, -1)
    column_of[np.delete(ids, filler)] = np.delete(np.arange(len(ids)), filler)
    blocks = -(-max(map(len, lists)) // VOCAB_BLOCK) + spare_blocks
    feeds[LIST_COLUMNS] = np.full((len(lists), blocks, VOCAB_BLOCK), filler, np.int32)
    feeds[LIST_IDS] = np.zeros(feeds[LIST_COLUMNS].shape, np.int64)
    feeds[ROW_SENTENCES] = np.arange(len(lists)).repeat(sentence_sizes or [1] * len(lists))
    for sentence, words in enumerate(lists):
        feeds[LIST_COLUMNS].reshape(len(lists), -1)[sentence, : len(words)] = column_of[words]
        feeds[LIST_IDS].reshape(len(lists), -1)[sentence, : len(words)] = words
    return feeds


def random_list(rng: np.random.Generator, length: int) -> IntArray:
    return np.sort(rng.choice(VOCAB_SIZE, length, replace=False))


def run(
    graphs: Graphs,
    rows: list[Row],
    lists: list[IntArray],
    rng: np.random.Generator,
    step: dict[str, Any] | None = None,
    **layout: int,
) -> list[bytes]:
    """Run one step; give each row's bits, its distribution only as far as its list goes."""
    feeds = step_feeds(SHAPE, rows, **(step or {}))
    sizes = (step or {}).get("sentence_sizes", [1] * len(rows))
    feeds |= list_feeds(graphs, lists, rng, sentence_sizes=sizes, **layout)
    outputs = graphs.shortlist_decoder.run(None, feeds)
    lengths = np.repeat([len(words) for words in lists], sizes)
    for row, length in enumerate(lengths):
        assert np.isneginf(outputs[2][row].ravel()[length:]).all()
    whole = read_step(graphs.shortlist_decoder, rows, feeds)
    width = outputs[2][0].size * 4
    head = outputs[0][0].nbytes + outputs[1][0].nbytes
    return [
        bits[: head + 4 * length] + bits[head + width :]
        for bits, length in zip(whole, lengths, strict=True)
    ]


@pytest.mark.parametrize("length", [9, 64, 65, 200, 700])
def test_a_row_depends_on_no_other_list_and_on_no_spare_room(graphs: Graphs, length: int) -> None:
    rng = np.random.default_rng(length)
    mine = random_row(SHAPE, int(rng.choice(PASTS)), 12, rng)
    words = random_list(rng, length)
    (alone,) = run(graphs, [mine], [words], rng)
    for num_others in (0, 1, 2, 5, 12, 40):
        rows = [
            random_row(SHAPE, int(rng.choice(PASTS)), int(rng.integers(1, 30)), rng)
            for _ in range(num_others)
        ]
        lists = [random_list(rng, int(rng.integers(8, 900))) for _ in range(num_others)]
        place = int(rng.integers(0, num_others + 1))
        rows.insert(place, mine)
        lists.insert(place, words)
        together = run(
            graphs,
            rows,
            lists,
            rng,
            {"num_lanes": int(rng.choice([2, 3, 4, 8]))},
            num_foreign=int(rng.choice([0, 1, 500, 1500])),
            spare_columns=int(rng.choice([0, 64, 640])),
            spare_blocks=int(rng.choice([0, 1, 3, 9])),
        )
        assert together[place] == alone


def test_beams_of_a_sentence_share_its_list(graphs: Graphs) -> None:
    rng = np.random.default_rng(1)
    source = random_row(SHAPE, 0, 21, rng)
    beams = [
        Row(
            token_id=beam.token_id,
            keys_values=beam.keys_values,
            cross_keys=source.cross_keys,
            cross_values=source.cross_values,
        )
        for beam in (random_row(SHAPE, 12, 21, rng) for _ in range(4))
    ]
    words, others = random_list(rng, 150), random_list(rng, 330)
    alone = [run(graphs, [beam], [words], rng)[0] for beam in beams]
    neighbour = random_row(SHAPE, 3, 30, rng)
    sizes = {"num_lanes": 4, "sentence_sizes": [1, 4]}
    together = run(graphs, [neighbour, *beams], [others, words], rng, sizes)
    assert together[1:] == alone


def test_a_list_of_all_words_equals_the_full_vocabulary(
    graphs_of: Callable[[Precision], Graphs],
) -> None:
    rng = np.random.default_rng(0)
    rows = [random_row(SHAPE, past, 12, rng) for past in (0, 5, 30)]
    lists = [np.arange(VOCAB_SIZE)] * len(rows)
    for precision in ("int8", "float32"):
        graphs = graphs_of(precision)
        feeds = step_feeds(SHAPE, rows)
        full = graphs.decoder.run(None, feeds)
        listed = graphs.shortlist_decoder.run(None, feeds | list_feeds(graphs, lists, rng))
        np.testing.assert_array_equal(listed[0], full[0])
        listed[2] = listed[2].reshape(full[2].shape)
        for ours, theirs in zip(listed[1:], full[1:], strict=True):
            if precision == "int8":
                assert ours.tobytes() == theirs.tobytes()
            else:
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_shorter_list_only_takes_words_away(graphs: Graphs) -> None:
    """What remains keeps its order, and its probabilities grow by what the others had."""
    rng = np.random.default_rng(3)
    row, words = random_row(SHAPE, 9, 12, rng), random_list(rng, 400)
    feeds = step_feeds(SHAPE, [row], num_candidates=32)
    full = graphs.decoder.run(None, feeds)[2][0].astype(np.float64)
    ids, log_probs, own = graphs.shortlist_decoder.run(
        None, feeds | list_feeds(graphs, [words], rng)
    )[:3]
    allowed = np.setdiff1d(words, SUPPRESSED)
    assert set(ids[0].tolist()) <= set(allowed.tolist())
    np.testing.assert_array_equal(ids[0], allowed[(-full[allowed]).argsort(kind="stable")[:32]])
    expected = full[words] - np.logaddexp.reduce(full[allowed])
    np.testing.assert_allclose(own.ravel()[: len(words)], expected, atol=1e-4)
    np.testing.assert_allclose(log_probs[0], np.sort(expected)[::-1][:32], atol=1e-4)
    assert np.exp(own[np.isfinite(own)].astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


def test_edits_name_places_in_lists_and_whole_distributions_follow_the_rows_asked_for(
    graphs: Graphs,
) -> None:
    rng = np.random.default_rng(4)
    rows = [random_row(SHAPE, 2, 12, rng) for _ in range(3)]
    lists = [random_list(rng, length) for length in (80, 300, 81)]
    feeds = step_feeds(SHAPE, rows) | list_feeds(graphs, lists, rng)
    before = graphs.shortlist_decoder.run(None, feeds)
    width = feeds[LIST_IDS][0].size
    best = [int(words.searchsorted(before[0][row, 0])) for row, words in enumerate(lists)]
    feeds |= {
        EDIT_POSITIONS: np.array([best[0], 2 * width + 5]),
        EDIT_SCALES: np.array([1.0, 0.0], np.float32),
        EDIT_BIASES: np.array([-np.inf, 3.0], np.float32),
        LOG_PROB_ROWS: np.array([2, 0]),
    }
    after = graphs.shortlist_decoder.run(None, feeds)
    assert after[0][0, :7].tolist() == before[0][0, 1:].tolist()
    assert after[0][1].tolist() == before[0][1].tolist()
    assert (after[0][2, 0], after[1][2, 0]) == (lists[2][5], 3.0)
    assert after[2].shape[0] == 2
    assert after[2][0].ravel()[5] == 3.0
    assert after[2][1].ravel()[best[0]] == -np.inf
