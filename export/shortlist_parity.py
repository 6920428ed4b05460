"""Do the graphs of a shortlist what the server relies on?

A list of all words must equal the full vocabulary, and what a row gets must not depend on the lists of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from export.bundle import Bundle, BundleError
from export.runner import Arrays, GraphRunner, create_session
from export.shortlist import Shortlist, load_shortlist, shortlist_faults
from export.signature import (
    CANDIDATE_IDS,
    CANDIDATE_LOG_PROBS,
    COLUMN_BIASES,
    COLUMN_IDS,
    LIST_COLUMNS,
    LIST_IDS,
    LOG_PROBS,
    MIN_COLUMNS,
    MIN_LANES,
    ROW_SENTENCES,
    VOCAB_BLOCK,
)
from model.tokenizer import Tokenizer

__all__ = ["find_shortlist_faults"]

_FLOAT_TOLERANCE = 1e-4
"""In float32 the product with all columns adds up in another order; in int8 it is the same, bit for bit."""

_OUTPUTS = [CANDIDATE_IDS, CANDIDATE_LOG_PROBS, LOG_PROBS]

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
        graphs = _ShortlistGraphs(bundle, runner)
    except Exception as error:  # noqa: BLE001 - the runtime raises a dozen unrelated types
        yield f"the graphs of the shortlist do not load: {error}"
        return
    if not found:
        yield from graphs.value_faults(sources)
        yield from graphs.independence_faults(sources, shortlist)


class _ShortlistGraphs:
    """The first step of sentences, each with a list."""

    def __init__(self, bundle: Bundle, runner: GraphRunner) -> None:
        self._runner = runner
        self._decoder = create_session(bundle.shortlist_decoder_path)
        self._columns = create_session(bundle.columns_path)
        self._vocab_size = bundle.manifest.architecture.vocab_size

    def value_faults(self, sources: Sequence[Sequence[int]]) -> Iterator[str]:
        """Give lists of all words: the full vocabulary must come out."""
        feeds = self._step_feeds(sources)
        all_words = np.arange(self._vocab_size)
        listed = self._run(feeds, [all_words] * len(sources))
        full = dict(zip(_OUTPUTS, self._runner.decoder.run(_OUTPUTS, feeds), strict=True))
        theirs = full[LOG_PROBS][:, : self._vocab_size]
        ours = listed[LOG_PROBS].reshape(len(sources), -1)[:, : self._vocab_size]
        exact = self._runner.manifest.precision == "int8"
        same = (
            ours.tobytes() == theirs.tobytes()
            if exact
            else np.allclose(ours, theirs, rtol=0, atol=_FLOAT_TOLERANCE)
        )
        if not same:
            yield "the shortlist's decoder with all words gives other log-probabilities than the decoder"

    def independence_faults(
        self, sources: Sequence[Sequence[int]], shortlist: Shortlist
    ) -> Iterator[str]:
        """Run each sentence alone and beside the others, with the lanes of each kind: the bits must be the same."""
        lists = [shortlist.words_for(source) for source in sources]
        for num_lanes, who in ((MIN_LANES, ""), (1, ", at beam 1")):
            together = self._run(self._step_feeds(sources, num_lanes), lists)
            for row, (source, words) in enumerate(zip(sources, lists, strict=True)):
                alone = self._run(self._step_feeds([source], num_lanes), [words])
                same = all(
                    alone[name][0].ravel()[: len(words)].tobytes()
                    == together[name][row].ravel()[: len(words)].tobytes()
                    for name in _OUTPUTS
                )
                if not same:
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

    def _run(self, feeds: Arrays, lists: Sequence[IntArray]) -> Arrays:
        """Run one step; the union has a filler, the words of all lists, and the filler again to the end."""
        union = np.unique(np.concatenate(lists))
        size = max(MIN_COLUMNS, -(-(len(union) + 1) // VOCAB_BLOCK) * VOCAB_BLOCK)
        ids = np.zeros(size, np.int64)
        ids[1 : len(union) + 1] = union
        names = [output.name for output in self._columns.get_outputs()]
        columns: dict[str, Any] = dict(
            zip(names, self._columns.run(names, {COLUMN_IDS: ids}), strict=True)
        )
        columns[COLUMN_BIASES][0] = -np.inf
        blocks = -(-max(map(len, lists)) // VOCAB_BLOCK)
        list_columns = np.zeros((len(lists), blocks * VOCAB_BLOCK), np.int32)
        list_ids = np.zeros(list_columns.shape, np.int64)
        for row, words in enumerate(lists):
            list_columns[row, : len(words)] = union.searchsorted(words) + 1
            list_ids[row, : len(words)] = words
        shape = (len(lists), blocks, VOCAB_BLOCK)
        lists_as_read = {
            ROW_SENTENCES: np.arange(len(lists)),
            LIST_COLUMNS: list_columns.reshape(shape),
            LIST_IDS: list_ids.reshape(shape),
        }
        found = self._decoder.run(_OUTPUTS, feeds | columns | lists_as_read)
        return dict(zip(_OUTPUTS, found, strict=True))
