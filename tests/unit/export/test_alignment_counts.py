"""Alignment: on a made-up language whose dictionary is known."""

from __future__ import annotations

import numpy as np
import pytest

from export import alignment_counts
from export.alignment_counts import AlignmentCounts, TokenPairs, count_alignments

VOCAB_SIZE = 60
EOS = 0
OFFSET = 20
"""Source word w becomes target word w + OFFSET; words come in any order."""


def make_pairs(num_pairs: int, seed: int = 0) -> TokenPairs:
    rng = np.random.default_rng(seed)
    sources, targets = [], []
    for _ in range(num_pairs):
        words = rng.integers(1, 20, rng.integers(1, 9)).tolist()
        sources.append([*words, EOS])
        swapped = [words[i ^ 1] if i ^ 1 < len(words) else words[i] for i in range(len(words))]
        targets.append([*(word + OFFSET for word in swapped), EOS])
    return TokenPairs.from_lists(sources, targets)


def ignoring_eos() -> np.ndarray:
    ignored = np.zeros(VOCAB_SIZE, bool)
    ignored[EOS] = True
    return ignored


def best_targets(counts: AlignmentCounts) -> dict[int, int]:
    found: dict[int, tuple[float, int]] = {}
    for source, target, count in zip(
        counts.sources.tolist(), counts.targets.tolist(), counts.counts.tolist(), strict=True
    ):
        found[source] = max(found.get(source, (0.0, -1)), (count, target))
    return {source: target for source, (_, target) in found.items() if source != EOS}


def test_the_dictionary_of_a_made_up_language_is_found() -> None:
    counts = count_alignments(make_pairs(400), ignoring_eos(), VOCAB_SIZE)
    assert best_targets(counts) == {word: word + OFFSET for word in range(1, 20)}
    assert (np.diff(counts.keys) > 0).all()
    right = counts.targets == counts.sources + OFFSET
    assert counts.counts[right].sum() > 0.9 * counts.counts.sum()


def test_every_target_word_that_counts_is_explained_once() -> None:
    pairs = make_pairs(50)
    counts = count_alignments(pairs, ignoring_eos(), VOCAB_SIZE)
    num_words = int((pairs.target_ids != EOS).sum())
    assert counts.counts.sum() == pytest.approx(num_words, rel=0.02)
    assert EOS not in counts.targets


@pytest.mark.parametrize("links", [150, 1000, 7777])
def test_blocks_of_any_size_find_the_same_dictionary(
    monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    monkeypatch.setattr(alignment_counts, "_BLOCK_LINKS", links)
    pairs = make_pairs(400)
    counts = count_alignments(pairs, ignoring_eos(), VOCAB_SIZE)
    assert best_targets(counts) == {word: word + OFFSET for word in range(1, 20)}
    num_words = int((pairs.target_ids != EOS).sum())
    assert counts.counts.sum() == pytest.approx(num_words, rel=0.1)


def test_parts_that_were_read_one_after_the_other_are_one_text() -> None:
    whole = make_pairs(30)
    parts = TokenPairs.concatenate([make_pairs(10, seed=1), make_pairs(20, seed=2)])
    assert len(parts) == len(whole) == 30
    assert parts.source_lengths.sum() == len(parts.source_ids)


def test_pairs_without_a_word_to_explain_give_nothing() -> None:
    pairs = TokenPairs.from_lists([[3, EOS], [4, EOS]], [[EOS], [EOS]])
    assert len(count_alignments(pairs, ignoring_eos(), VOCAB_SIZE).keys) == 0
    none = TokenPairs.from_lists([], [])
    assert len(count_alignments(none, ignoring_eos(), VOCAB_SIZE).keys) == 0
