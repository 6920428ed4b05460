"""Two decoders as one: rows of both kinds keep their order, whoever comes and goes."""

from __future__ import annotations

import numpy as np
import pytest

from service.engine.cross_attention_cache import EncodedBatch
from service.engine.mixed_decoder import MixedDecoder, RowKind
from service.engine.onnx_decoder import OnnxEncoded
from service.rows import Candidates, Edits, RowMoves


class TellingDecoder:
    """Keeps what it was told; a candidate is the source of its row, its log-probability the last token."""

    def __init__(self) -> None:
        self.sources: list[int] = []
        self.rows: list[tuple[int, int]] = []  # sentence, last token
        self.edits: list[tuple[int, int]] = []

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def longest_source(self) -> int:
        return 7 if self.rows else 0

    live_bytes = reserved_bytes = num_rows

    def admit(self, encoded: OnnxEncoded) -> None:
        found = {
            place: int(batch.lengths[row])
            for batch in encoded.batches
            for row, place in enumerate(batch.places)
        }
        assert sorted(found) == list(range(len(encoded.word_lists)))
        for place in sorted(found):
            self.rows.append((len(self.sources), 0))
            self.sources.append(found[place])

    def decode(self, num_candidates: int, edits: Edits) -> Candidates:
        assert self.rows
        self.edits = list(zip(edits.rows.tolist(), edits.token_ids.tolist(), strict=True))
        shape = (len(self.rows), num_candidates)
        ids = np.array([self.sources[sentence] for sentence, _ in self.rows])
        tokens = np.array([token for _, token in self.rows], np.float32)
        return Candidates(
            np.broadcast_to(ids[:, None], shape), np.broadcast_to(tokens[:, None], shape)
        )

    def gather(self, moves: RowMoves) -> None:
        kept = moves.kept_sentences.tolist()
        owners = np.arange(len(kept)).repeat(moves.row_counts).tolist()
        parents = moves.parent_rows.tolist()
        assert [self.rows[parent][0] for parent in parents] == [kept[owner] for owner in owners]
        self.rows = list(zip(owners, moves.token_ids.tolist(), strict=True))
        self.sources = [self.sources[place] for place in kept]

    def reset(self) -> None:
        self.sources, self.rows = [], []


def encoded(sources: list[tuple[int, bool]]) -> OnnxEncoded:
    """Sentences, each with a number and whether it has a list; in two batches, out of order."""
    batches = []
    for places in ([p for p in range(len(sources)) if p % 3], [*range(0, len(sources), 3)]):
        if places:
            numbers = np.array([sources[place][0] for place in places])
            keys = numbers[:, None, None, None].astype(np.float32)
            batches.append(EncodedBatch(places, numbers, [keys], [keys]))
    lists = [np.array([1]) if is_listed else None for _, is_listed in sources]
    return OnnxEncoded(batches, 0, lists, [False] * len(lists))


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_looks_like_one_decoder(seed: int) -> None:
    rng = np.random.default_rng(seed)
    all_words, listed = TellingDecoder(), TellingDecoder()
    mixed = MixedDecoder({RowKind(False, False): all_words, RowKind(True, False): listed})
    sentences: list[tuple[int, bool]] = []
    rows: list[tuple[int, int]] = []  # number of the sentence, last token
    counts: list[int] = []
    number = 0
    for _ in range(60):
        for _ in range(int(rng.integers(0, 3))):
            joined = [(number + i, bool(rng.random() < 0.6)) for i in range(rng.integers(1, 4))]
            number += len(joined)
            mixed.admit(encoded(joined))
            sentences += joined
            rows += [(source, 0) for source, _ in joined]
            counts += [1] * len(joined)
        assert mixed.num_rows == len(rows)
        if not rows:
            continue
        edited = rng.permutation(len(rows))[: rng.integers(0, 3)]
        edits = Edits(edited, edited * 10, np.ones(len(edited)), np.zeros(len(edited)))
        found = mixed.decode(2, edits)
        assert found.token_ids[:, 0].tolist() == [source for source, _ in rows]
        assert found.log_probs[:, 1].tolist() == [token for _, token in rows]
        said = [rows[row][0] for row in edited.tolist()]
        told = [
            decoder.sources[decoder.rows[row][0]]
            for decoder in (all_words, listed)
            if decoder.rows
            for row, _ in decoder.edits
        ]
        if {kind for _, kind in sentences} == {True, False}:
            assert sorted(told) == sorted(said)
        kept = np.flatnonzero(rng.random(len(sentences)) < 0.8)
        row_counts = rng.integers(1, 5, len(kept))
        first = np.cumsum([0, *counts])
        parents = np.concatenate(
            [np.empty(0, np.int64)]
            + [
                rng.integers(first[place], first[place + 1], count)
                for place, count in zip(kept.tolist(), row_counts.tolist(), strict=True)
            ]
        ).astype(np.int64)
        tokens = rng.integers(1, 100, len(parents))
        mixed.gather(RowMoves(parents, tokens, kept, row_counts))
        rows = [
            (rows[parent][0], token)
            for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        sentences = [sentences[place] for place in kept.tolist()]
        counts = row_counts.tolist()
    mixed.reset()
    assert (mixed.num_rows, all_words.rows, listed.rows) == (0, [], [])
