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
from export.list_feeds import lay_out_lists
from export.runner import create_session
from export.signature import (
    CHUNK_BIASES,
    CHUNK_ROWS,
    CHUNK_SCALES,
    CHUNK_WEIGHTS,
    CHUNK_WORDS,
    COLUMN_BIASES,
    COLUMN_IDS,
    COLUMN_SCALES,
    COLUMN_WEIGHTS,
    EDIT_BIASES,
    EDIT_POSITIONS,
    EDIT_SCALES,
    LANE_CHUNKS,
    LIST_IDS,
    LOG_PROB_ROWS,
    MIN_LANES,
    padded_frequent,
)
from tests.decoder_steps import PASTS, Row, past_lengths, random_row, step_feeds
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

FREQUENT = np.array([0, 2, *range(5, 85, 2)])
CHUNK_INPUTS = {
    COLUMN_WEIGHTS: CHUNK_WEIGHTS,
    COLUMN_BIASES: CHUNK_BIASES,
    COLUMN_SCALES: CHUNK_SCALES,
}

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
    spare_chunks: int = 0,
    num_lanes: int = MIN_LANES,
    sentence_sizes: Sequence[int] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Lay lists out as the decoder reads them: chunks in a random order, some of nobody among them."""
    sizes = list(sentence_sizes or [1] * len(lists))
    first = np.cumsum([0, *sizes[:-1]])
    lane_rows = np.array(
        [
            [row + lane % size for lane in range(num_lanes)]
            for row, size in zip(first, sizes, strict=True)
        ]
    )
    row_lanes = np.concatenate([s * num_lanes + np.arange(size) for s, size in enumerate(sizes)])
    own = [np.setdiff1d(words, FREQUENT) for words in lists]
    feeds = lay_out_lists(graphs.fetch, FREQUENT, own, lane_rows, row_lanes)
    foreign = graphs.fetch(rng.integers(0, VOCAB_SIZE, (num_foreign, CHUNK_WORDS)))
    count = len(feeds[CHUNK_ROWS])
    order = rng.permutation(count + num_foreign)
    for column, name in CHUNK_INPUTS.items():
        if column in foreign:
            feeds[name] = np.concatenate([feeds[name], foreign[column]])[order]
    someone = rng.integers(0, sum(sizes), (num_foreign, num_lanes))
    feeds[CHUNK_ROWS] = np.concatenate([feeds[CHUNK_ROWS], someone])[order]
    chunks, lanes = np.divmod(feeds[LANE_CHUNKS], num_lanes)
    spare = [(0, 0), (0, 0), (0, spare_chunks)]
    chunks, lanes = np.pad(chunks, spare), np.pad(lanes, spare, mode="edge")
    feeds[LANE_CHUNKS] = order.argsort()[chunks] * num_lanes + lanes
    feeds[LIST_IDS] = np.pad(feeds[LIST_IDS], [(0, 0), (0, 3 * spare_chunks), (0, 0)])
    return feeds | {LOG_PROB_ROWS: row_lanes}


def places_of(words: IntArray) -> IntArray:
    """Where the words of a list are, frequent ones first."""
    own = np.setdiff1d(words, FREQUENT)
    first = padded_frequent(len(FREQUENT))
    return np.r_[: len(FREQUENT), first : first + len(own)]


def in_order(words: IntArray) -> IntArray:
    """The words of a list in the order of their places."""
    return np.concatenate([FREQUENT, np.setdiff1d(words, FREQUENT)])


def random_list(rng: np.random.Generator, length: int) -> IntArray:
    return np.union1d(FREQUENT, rng.choice(VOCAB_SIZE, length, replace=False))


def run(
    graphs: Graphs,
    rows: list[Row],
    lists: list[IntArray],
    rng: np.random.Generator,
    step: dict[str, Any] | None = None,
    **layout: int,
) -> list[bytes]:
    """Run one step; give each row's bits, its distribution only as far as its list goes."""
    step = step or {}
    feeds = step_feeds(SHAPE, rows, **step)
    sizes = step.get("sentence_sizes", [1] * len(rows))
    num_lanes = step.get("num_lanes", MIN_LANES)
    feeds |= list_feeds(graphs, lists, rng, sentence_sizes=sizes, num_lanes=num_lanes, **layout)
    ids, log_probs, distributions, *caches = graphs.shortlist_decoder.run(None, feeds)
    owners = np.arange(len(lists)).repeat(sizes)
    found = []
    for row, (own, past) in enumerate(zip(owners, past_lengths(rows), strict=True)):
        whole = distributions[row].ravel()
        mine = places_of(lists[own])
        assert np.isneginf(np.delete(whole, mine)).all()
        kept = [cache[row][:, : past + 1] for cache in caches]
        parts = [ids[row], log_probs[row], whole[mine], *kept]
        found.append(b"".join(part.tobytes() for part in parts))
    return found


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
            num_foreign=int(rng.choice([0, 1, 5, 30])),
            spare_chunks=int(rng.choice([0, 1, 3])),
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


@pytest.mark.parametrize("length", [9, 200, 700])
def test_so_it_is_with_one_lane(graphs: Graphs, length: int) -> None:
    rng = np.random.default_rng(length)
    one = {"num_lanes": 1}
    mine, words = random_row(SHAPE, 7, 12, rng), random_list(rng, length)
    (alone,) = run(graphs, [mine], [words], rng, one)
    for num_others in (1, 3, 31):
        rows = [mine, *(random_row(SHAPE, 5, 20, rng) for _ in range(num_others))]
        lists = [words, *(random_list(rng, 300) for _ in range(num_others))]
        assert run(graphs, rows, lists, rng, one, num_foreign=3, spare_chunks=1)[0] == alone


def test_a_list_of_all_words_equals_the_full_vocabulary(graphs: Graphs) -> None:
    """But for the order in which probabilities are added up."""
    rng = np.random.default_rng(0)
    rows = [random_row(SHAPE, past, 12, rng) for past in (0, 5, 30)]
    every = np.arange(VOCAB_SIZE)
    feeds = step_feeds(SHAPE, rows)
    full = graphs.decoder.run(None, feeds)
    listed = graphs.shortlist_decoder.run(None, feeds | list_feeds(graphs, [every] * 3, rng))
    np.testing.assert_array_equal(listed[0], full[0])
    listed[2] = listed[2].reshape(3, -1)[:, places_of(every)]
    full[2] = full[2][:, in_order(every)]
    for ours, theirs in zip(listed[1:], full[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_shorter_list_only_takes_words_away(graphs: Graphs) -> None:
    """What remains keeps its order, and its probabilities grow by what the others had."""
    rng = np.random.default_rng(3)
    row, words = random_row(SHAPE, 9, 12, rng), random_list(rng, 400)
    feeds = step_feeds(SHAPE, [row], num_candidates=32)
    full = graphs.decoder.run(None, feeds | {LOG_PROB_ROWS: np.array([0])})[2][0]
    full = full.astype(np.float64)
    ids, log_probs, own = graphs.shortlist_decoder.run(
        None, feeds | list_feeds(graphs, [words], rng)
    )[:3]
    allowed = np.setdiff1d(words, SUPPRESSED)
    assert set(ids[0].tolist()) <= set(allowed.tolist())
    np.testing.assert_array_equal(ids[0], allowed[(-full[allowed]).argsort(kind="stable")[:32]])
    expected = full[in_order(words)] - np.logaddexp.reduce(full[allowed])
    np.testing.assert_allclose(own.ravel()[places_of(words)], expected, atol=1e-4)
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
    spot = {
        (row, word): int(place)
        for row, words in enumerate(lists)
        for word, place in zip(in_order(words).tolist(), places_of(words), strict=True)
    }
    best = [spot[row, int(before[0][row, 0])] for row in range(3)]
    wanted = int(in_order(lists[2])[90])
    feeds |= {
        EDIT_POSITIONS: np.array([best[0], 2 * MIN_LANES * width + spot[2, wanted]]),
        EDIT_SCALES: np.array([1.0, 0.0], np.float32),
        EDIT_BIASES: np.array([-np.inf, 3.0], np.float32),
        LOG_PROB_ROWS: np.array([2, 0]) * MIN_LANES,
    }
    after = graphs.shortlist_decoder.run(None, feeds)
    assert after[0][0, :7].tolist() == before[0][0, 1:].tolist()
    assert after[0][1].tolist() == before[0][1].tolist()
    assert (after[0][2, 0], after[1][2, 0]) == (wanted, 3.0)
    assert after[2].shape[0] == 2
    assert after[2][0].ravel()[spot[2, wanted]] == 3.0
    assert after[2][1].ravel()[best[0]] == -np.inf
