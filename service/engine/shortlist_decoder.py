"""Stage 6 of 10: rows that look at the words of their own sentence's list only.

What a row gets depends on its own list, never on those of its neighbours: the graph puts its logits side by side in
the order of the words before it adds anything up. An edit that forbids a word outside the list does nothing; any other
edit of such a word adds it to the list of its sentence, which keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import signature
from export.shortlist import Shortlist
from service.engine.base import Encoded
from service.engine.decoder_state import CacheShape, StepInputs
from service.engine.onnx_decoder import Bound, OnnxDecoder, OnnxEncoded
from service.engine.sessions import RUN_ERRORS
from service.engine.shortlist_columns import ShortlistColumns
from service.engine.word_lists import WordLists
from service.errors import EngineStepError
from service.rows import NO_EDITS, Candidates, Edits, RowMoves

__all__ = ["EngineShortlist", "ShortlistDecoder"]

AnyArray = NDArray[np.generic]
IntArray = NDArray[np.int64]

_LARGEST_SHARE = 0.5
"""Of the vocabulary: a sentence with a longer list is as well off with all words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShortlist:
    """What a bundle with a shortlist holds more than another; shared by all workers."""

    lists: Shortlist
    decoder: ort.InferenceSession
    columns: ort.InferenceSession
    vocab_size: int

    def words_for(self, source_ids: tuple[int, ...]) -> IntArray | None:
        """Give the list of a sentence, or None when it would hold most words there are."""
        words = self.lists.words_for(source_ids)
        return words if len(words) <= _LARGEST_SHARE * self.vocab_size else None

    def fetch(self, words: IntArray) -> dict[str, AnyArray]:
        """Give the columns of words, by the names of the decoder's inputs."""
        names = [output.name for output in self.columns.get_outputs()]
        try:
            columns = self.columns.run(names, {signature.COLUMN_IDS: words})
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
        union = ShortlistColumns(shortlist.fetch, signature.COLUMN_BIASES, shortlist.vocab_size)
        self._lists = WordLists(union)
        self._bound_columns: dict[str, AnyArray] | None = None
        self._bound_lists: Bound | None = None
        self._translated: tuple[Edits, Edits] | None = None

    def admit(self, encoded: Encoded) -> None:
        super().admit(encoded)
        assert isinstance(encoded, OnnxEncoded)
        self._translated = None
        self._lists.append(*(words for words in encoded.word_lists if words is not None))

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        own = self._edit_lists(edits)
        self._lists.lay_out(self.state.sentence_slots)
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
        self._binding.feed(signature.ROW_SENTENCES, inputs.row_slots)

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
        """Bind columns and lists again when they have moved, or the number of sentences has changed."""
        lists, count = self._lists, self.state.num_sentences
        if lists.union.tensors is not self._bound_columns:
            self._bound_columns = lists.union.tensors
            for name, array in lists.union.tensors.items():
                self._binding.bind_input(name, array)
        if self._bound_lists is None or not self._bound_lists.is_same(lists.columns, count):
            self._bound_lists = Bound(lists.columns, count)
            self._binding.bind_input(signature.LIST_COLUMNS, lists.columns[:count])
            self._binding.bind_input(signature.LIST_IDS, lists.ids[:count])
