"""Stage 6 of 10: rows that look at the words of their own sentence's list only.

What a row gets depends on its own list, never on those of its neighbours: the graph puts the logits of each lane side
by side before it adds anything up. An edit that forbids a word outside the list does nothing; any other edit of such a
word adds it to the list of its sentence, which keeps it.
"""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import signature
from export.shortlist import Shortlist
from service.engine.base import Encoded
from service.engine.decoder_state import CacheShape, StepInputs
from service.engine.onnx_decoder import Bound, OnnxDecoder, OnnxEncoded
from service.engine.sessions import RUN_ERRORS
from service.engine.word_chunks import WordChunks
from service.engine.word_lists import WordLists
from service.errors import EngineStepError
from service.rows import NO_EDITS, Candidates, Edits, RowMoves

__all__ = ["EngineShortlist", "ShortlistDecoder"]

AnyArray = NDArray[np.generic]
IntArray = NDArray[np.int64]

_LARGEST_SHARE = 0.5
"""Of the vocabulary: a sentence with a longer list is as well off with all words."""
_CHUNK_INPUTS = {
    signature.COLUMN_WEIGHTS: signature.CHUNK_WEIGHTS,
    signature.COLUMN_SCALES: signature.CHUNK_SCALES,
    signature.COLUMN_BIASES: signature.CHUNK_BIASES,
}
_FREQUENT_INPUTS = {
    signature.COLUMN_WEIGHTS: signature.FREQUENT_WEIGHTS,
    signature.COLUMN_SCALES: signature.FREQUENT_SCALES,
    signature.COLUMN_BIASES: signature.FREQUENT_BIASES,
}


class EngineShortlist:
    """What a bundle with a shortlist holds more than another; shared by all workers.

    Attributes:
        frequent_ids: The words of all lists, ascending.
        frequent: Their columns, (.., F), by the names of the decoder's inputs; filled up with logits of -inf.
    """

    def __init__(
        self,
        *,
        lists: Shortlist,
        decoder: ort.InferenceSession,
        columns: ort.InferenceSession,
        vocab_size: int,
    ) -> None:
        """Take the file, and the sessions of both graphs.

        Raises:
            EngineStepError: The columns of frequent words cannot be fetched.
        """
        self.lists = lists
        self.decoder = decoder
        self.vocab_size = vocab_size
        self._columns = columns
        self.frequent_ids: IntArray = np.unique(lists.frequent).astype(np.int64)
        count = len(self.frequent_ids)
        ids = np.zeros((1, signature.padded_frequent(count)), np.int64)
        ids[0, :count] = self.frequent_ids
        columns = self.fetch(ids)
        columns[signature.COLUMN_BIASES][..., count:] = -np.inf
        self.frequent: dict[str, AnyArray] = {
            _FREQUENT_INPUTS[name]: column[0] if name == signature.COLUMN_WEIGHTS else column[0, 0]
            for name, column in columns.items()
        }

    @property
    def num_frequent(self) -> int:
        """Places for frequent words in a list, F."""
        return int(self.frequent[signature.FREQUENT_BIASES].shape[0])

    def words_for(self, source_ids: tuple[int, ...]) -> IntArray | None:
        """Give the list of a sentence, or None when it would hold most words there are."""
        words = self.lists.words_for(source_ids)
        return words if len(words) <= _LARGEST_SHARE * self.vocab_size else None

    def create_lists(self) -> WordLists:
        """Lists without sentences, for one decoder."""
        chunks = WordChunks(self.fetch, _CHUNK_INPUTS, signature.CHUNK_BIASES)
        return WordLists(chunks, self.frequent_ids, self.num_frequent, self.vocab_size)

    def fetch(self, words: IntArray) -> dict[str, AnyArray]:
        """Give the columns of words (G, U), (G, .., U), by the names of the graph that fetches them."""
        names = [output.name for output in self._columns.get_outputs()]
        try:
            columns = self._columns.run(names, {signature.COLUMN_IDS: words})
        except RUN_ERRORS as error:
            raise EngineStepError("The columns of a shortlist cannot be fetched.") from error
        return dict(zip(names, columns, strict=True))


class ShortlistDecoder(OnnxDecoder):
    """Rows of one worker that all have a list."""

    def __init__(
        self,
        shortlist: EngineShortlist,
        shape: CacheShape,
        min_lanes: int = signature.MIN_LANES,
    ) -> None:
        super().__init__(shortlist.decoder, shape, shortlist.vocab_size, min_lanes)
        self._lists = shortlist.create_lists()
        self._frequent = shortlist.frequent
        for name, array in self._frequent.items():
            self._binding.bind_input(name, array)
        self._bound_chunks: Bound | None = None
        self._bound_ids: Bound | None = None
        self._lane_rows: IntArray | None = None
        """As they were when chunks were last placed, until lists move."""
        self._translated: tuple[Edits, Edits] | None = None

    def admit(self, encoded: Encoded) -> None:
        super().admit(encoded)
        assert isinstance(encoded, OnnxEncoded)
        self._translated = None
        self._lists.append(*(words for words in encoded.word_lists if words is not None))

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        own = self._edit_lists(edits)
        if self._lists.lay_out(self.state.sentence_slots):
            self._lane_rows = None
        self._bind_lists()
        self._width = self._lists.width
        count = min(num_candidates, self._width)
        found = super().decode(count, own)
        if count == num_candidates:
            return found
        missing = ((0, 0), (0, num_candidates - count))
        return Candidates(
            np.pad(found.token_ids, missing),
            np.pad(found.log_probs, missing, constant_values=-np.inf),
        )

    def gather(self, moves: RowMoves) -> None:
        if len(moves.kept_sentences) < len(self._lists):
            self._translated = None
            self._lists.keep(moves.kept_sentences)
        super().gather(moves)

    def reset(self) -> None:
        super().reset()
        self._translated = None
        self._lists.reset()

    def _feed_rows(self, inputs: StepInputs) -> None:
        super()._feed_rows(inputs)
        if inputs.lane_rows is not self._lane_rows:
            self._place_chunks(inputs)

    def _place_chunks(self, inputs: StepInputs) -> None:
        """Say which rows each chunk is multiplied with, and where each lane finds its own words."""
        self._lane_rows = inputs.lane_rows
        num_lanes = inputs.lane_rows.shape[1]
        lane_chunks = self._lists.slot_chunks[:, None] * num_lanes + np.arange(num_lanes)[:, None]
        self._binding.feed(signature.LANE_ROWS, inputs.lane_rows)
        self._binding.feed(signature.ROW_LANES, inputs.row_lanes)
        self._binding.feed(signature.ROW_SENTENCES, inputs.row_slots)
        self._binding.feed(signature.CHUNK_ROWS, inputs.lane_rows[self._lists.chunk_slots])
        self._binding.feed(signature.LANE_CHUNKS, lane_chunks)

    def _distributions(self, places: IntArray, inputs: StepInputs) -> IntArray:
        return inputs.row_lanes.take(places)

    def _edit_lists(self, edits: Edits) -> Edits:
        """Turn edits of words into edits of places in lists, after adding the words that are more than forbidden."""
        if not len(edits.rows):
            return NO_EDITS
        if self._translated is not None and self._translated[0] is edits:
            return self._translated[1]
        sentences = self.state.row_sentences[edits.rows]
        places = self._lists.places(sentences, edits.token_ids)
        wanted = (places < 0) & (edits.biases > -np.inf)
        if wanted.any():
            for sentence in np.unique(sentences[wanted]).tolist():
                words = edits.token_ids[wanted & (sentences == sentence)]
                self._lists.extend(sentence, np.unique(words))
            places = self._lists.places(sentences, edits.token_ids)
        known = places >= 0
        own = Edits(edits.rows[known], places[known], edits.scales[known], edits.biases[known])
        self._translated = (edits, own)
        return own

    def _bind_lists(self) -> None:
        """Bind columns and lists again when they have moved, or their number has changed."""
        chunks, ids = self._lists.chunks, self._lists.ids
        biases = chunks.tensors[signature.CHUNK_BIASES]
        if self._bound_chunks is None or not self._bound_chunks.is_same(biases, chunks.num_chunks):
            self._bound_chunks = Bound(biases, chunks.num_chunks)
            for name, array in chunks.tensors.items():
                self._binding.bind_input(name, array[: chunks.num_chunks])
        count = self.state.num_sentences
        if self._bound_ids is None or not self._bound_ids.is_same(ids, count):
            self._bound_ids = Bound(ids, count)
            self._binding.bind_input(signature.LIST_IDS, ids[:count])
