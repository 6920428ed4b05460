"""Do the graphs of a shortlist what the server relies on?

A list of all words must equal the full vocabulary, and what a row gets must not depend on the lists of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from export.bundle import Bundle, BundleError
from export.list_feeds import lay_out_lists
from export.runner import Arrays, GraphRunner, create_session
from export.shortlist import Shortlist, load_shortlist, shortlist_faults
from export.signature import (
    COLUMN_IDS,
    FREQUENT_BIASES,
    LANE_HEADS,
    LOG_PROB_ROWS,
    LOG_PROBS,
    MIN_LANES,
)
from model.tokenizer import Tokenizer

__all__ = ["find_shortlist_faults"]

_TOLERANCE = 1e-4
"""Sums over words in another order, and in float32 products, too."""

IntArray = npt.NDArray[np.int64]


def find_shortlist_faults(
    bundle: Bundle, runner: GraphRunner, sources: Sequence[Sequence[int]]
) -> Iterator[str]:
    """Check the lists of a bundle that has some, and its two graphs on these sources."""
    if bundle.shortlist_path is None:
        return
    try:
        shortlist = load_shortlist(bundle.shortlist_path)
    except BundleError as error:
        yield from error.faults
        return
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    found = [
        *shortlist_faults(
            shortlist,
            source_vocab_size=tokenizer.source_vocab_size,
            target_vocab_size=tokenizer.target_vocab_size,
            eos_id=tokenizer.eos_id,
        )
    ]
    yield from found
    try:
        graphs = _ShortlistGraphs(bundle, runner, shortlist)
    except Exception as error:  # noqa: BLE001 - the runtime raises a dozen unrelated types
        yield f"the graphs of the shortlist do not load: {error}"
        return
    if not found:
        yield from graphs.value_faults(sources)
        yield from graphs.independence_faults(sources)


class _ShortlistGraphs:
    """The first step of sentences, each with a list."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, shortlist: Shortlist) -> None:
        self._runner = runner
        self._shortlist = shortlist
        self._frequent = np.unique(shortlist.frequent).astype(np.int64)
        self._decoder = create_session(bundle.shortlist_decoder_path)
        self._columns = create_session(bundle.columns_path)
        self._vocab_size = bundle.manifest.architecture.vocab_size

    def value_faults(self, sources: Sequence[Sequence[int]]) -> Iterator[str]:
        """Give lists of all words: the full vocabulary must come out."""
        feeds = self._step_feeds(sources)
        own = np.setdiff1d(np.arange(self._vocab_size), self._frequent)
        listed = self._run(feeds, [own] * len(sources))
        full = self._runner.decoder.run([LOG_PROBS], feeds)[0]
        for row, found in enumerate(listed):
            words, log_probs = found
            if len(words) != self._vocab_size or not np.allclose(
                log_probs, full[row][words], rtol=0, atol=_TOLERANCE
            ):
                yield (
                    "the shortlist's decoder with all words gives other log-probabilities than "
                    "the decoder"
                )
                return

    def independence_faults(self, sources: Sequence[Sequence[int]]) -> Iterator[str]:
        """Run each sentence alone and beside the others, with the lanes of each kind: the bits must be the same."""
        own = [
            np.setdiff1d(self._shortlist.words_for(source), self._frequent) for source in sources
        ]
        for num_lanes, who in ((MIN_LANES, ""), (1, ", at beam 1")):
            together = self._run(self._step_feeds(sources, num_lanes), own)
            for source, words, beside in zip(sources, own, together, strict=True):
                (alone,) = self._run(self._step_feeds([source], num_lanes), [words])
                if alone[1].tobytes() != beside[1].tobytes():
                    yield (
                        f"a sentence of {len(source)} tokens gets other log-probabilities from the "
                        f"shortlist's decoder beside other sentences than alone{who}"
                    )

    def _step_feeds(self, sources: Sequence[Sequence[int]], num_lanes: int = MIN_LANES) -> Arrays:
        runner = self._runner
        tokens = runner.manifest.special_tokens
        first = tokens.pad_id if tokens.bos_id is None else tokens.bos_id
        caches = runner.start(len(sources), 2)
        memory = runner.encode(sources)
        starts = np.full(len(sources), first)
        return runner.decoder_feeds(starts, 0, memory, caches, num_lanes=num_lanes)

    def _run(
        self, feeds: Arrays, own: Sequence[IntArray]
    ) -> list[tuple[IntArray, npt.NDArray[np.float32]]]:
        """Run one step of a row a sentence; give the words of its list and their log-probabilities."""
        num_lanes = feeds[LANE_HEADS].shape[2]
        rows = np.arange(len(own))
        lane_rows, row_lanes = np.repeat(rows[:, None], num_lanes, axis=1), rows * num_lanes
        lists = lay_out_lists(self._fetch, self._frequent, own, lane_rows, row_lanes)
        found = self._decoder.run([LOG_PROBS], feeds | lists | {LOG_PROB_ROWS: row_lanes})[
            0
        ].reshape(len(own), -1)
        num_frequent = lists[FREQUENT_BIASES].shape[0]
        places = [
            np.r_[: len(self._frequent), num_frequent : num_frequent + len(words)] for words in own
        ]
        return [
            (np.concatenate([self._frequent, words]), log_probs[place])
            for words, log_probs, place in zip(own, found, places, strict=True)
        ]

    def _fetch(self, words: IntArray) -> Arrays:
        names = [output.name for output in self._columns.get_outputs()]
        return dict(zip(names, self._columns.run(names, {COLUMN_IDS: words}), strict=True))
