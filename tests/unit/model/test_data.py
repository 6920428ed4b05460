from __future__ import annotations

import numpy as np
import pytest
import torch

from model.data import (
    BatchStream,
    Corpus,
    Sentences,
    StreamPosition,
    iterate_once,
    plan_batches,
    tokenize_corpus,
)
from tests.tiny_models import SENTENCES, make_tokenizer

EOS = 0


def _make_corpus(num_pairs: int = 40, *, seed: int = 0) -> Corpus:
    """Give pairs of random lengths whose first token is their own number, padded with the id of EOS."""
    random = np.random.default_rng(seed)

    def sentences() -> Sentences:
        lengths = random.integers(2, 12, num_pairs)
        return Sentences([[100 + i, *[5] * (n - 2), EOS] for i, n in enumerate(lengths)])

    return Corpus(sources=sentences(), targets=sentences(), pad_id=EOS)


def test_pairs_are_padded_side_by_side() -> None:
    corpus = Corpus(
        sources=Sentences([[7, EOS], [8, 9, EOS]]),
        targets=Sentences([[3, 4, EOS], [EOS]]),
        pad_id=EOS,
    )
    batch = corpus.batch(np.array([1, 0]))
    assert batch.source_ids.tolist() == [[8, 9, EOS], [7, EOS, EOS]]
    assert batch.target_ids.tolist() == [[EOS, EOS, EOS], [3, 4, EOS]]
    assert batch.num_target_tokens == 4


def test_joined_sentences_keep_their_order_and_bounds() -> None:
    joined = Sentences.join([Sentences([[1, 2], [3]]), Sentences(), Sentences([[4, 5, 6]])])
    assert [ids.tolist() for ids in (joined[0], joined[1], joined[2])] == [[1, 2], [3], [4, 5, 6]]
    assert len(Sentences.join([])) == 0


def test_masks_come_from_lengths_although_padding_is_eos() -> None:
    batch = _make_corpus().batch(np.arange(10))
    corpus = _make_corpus()
    assert batch.source_mask.sum(dim=1).tolist() == corpus.sources.lengths[:10].tolist()
    assert batch.target_mask.sum(dim=1).tolist() == corpus.targets.lengths[:10].tolist()
    last = batch.target_mask.sum(dim=1, keepdim=True) - 1
    assert (batch.target_ids.gather(1, last) == EOS).all()
    assert batch.target_mask.gather(1, last).all()


def test_batches_hold_every_pair_once_within_the_budget() -> None:
    corpus = _make_corpus(200)
    batches = plan_batches(corpus, 60, np.arange(200))
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    for indices in batches:
        longest = max(corpus.sources.lengths[indices].max(), corpus.targets.lengths[indices].max())
        assert len(indices) * longest <= 60


def test_batches_hold_similar_lengths() -> None:
    corpus = _make_corpus(400)
    batches = plan_batches(corpus, 100, np.arange(400))
    spread = [np.ptp(corpus.targets.lengths[indices]) for indices in batches]
    assert max(spread) <= 2


def test_pair_over_the_budget_gets_a_batch_of_its_own() -> None:
    sides = Sentences([[5] * 30, [5] * 3, [5] * 3])
    corpus = Corpus(sources=sides, targets=sides, pad_id=EOS)
    assert [b.tolist() for b in plan_batches(corpus, 10, np.arange(3))] == [[1, 2], [0]]


def test_order_decides_the_neighbours_of_equal_length() -> None:
    sides = Sentences([[5] * n for n in (3, 9, 3, 9)])
    corpus = Corpus(sources=sides, targets=sides, pad_id=EOS)
    batches = plan_batches(corpus, 18, np.array([3, 2, 1, 0]))
    assert [batch.tolist() for batch in batches] == [[2, 0], [3, 1]]


def _first_tokens(stream: BatchStream, count: int) -> list[list[int]]:
    return [batch.source_ids[:, 0].tolist() for batch in stream.take(count)]


def _open(corpus: Corpus, seed: int = 1, position: StreamPosition | None = None) -> BatchStream:
    return BatchStream(corpus, batch_tokens=40, seed=seed, position=position)


def test_seed_decides_the_order() -> None:
    corpus = _make_corpus()
    assert _first_tokens(_open(corpus), 20) == _first_tokens(_open(corpus), 20)
    assert _first_tokens(_open(corpus), 20) != _first_tokens(_open(corpus, seed=2), 20)


def test_every_epoch_sees_every_pair_once_in_another_order() -> None:
    corpus = _make_corpus()
    stream = _open(corpus)
    epochs = []
    for _ in range(3):
        batches: list[list[int]] = []
        while len(batches) < stream.batches_per_epoch:
            batches += _first_tokens(stream, 1)
        epochs.append(batches)
    for batches in epochs:
        assert sorted(sum(batches, [])) == list(range(100, 140))
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("before", [0, 1, 7, 30])
def test_stream_goes_on_from_a_position(before: int) -> None:
    corpus = _make_corpus()
    stream = _open(corpus)
    stream.take(before)
    resumed = _open(corpus, position=stream.position)
    assert _first_tokens(resumed, 25) == _first_tokens(stream, 25)


def test_processes_share_what_one_would_see() -> None:
    corpus = _make_corpus()
    alone = _first_tokens(_open(corpus), 12)
    shares = [
        BatchStream(corpus, batch_tokens=40, seed=1, rank=rank, world_size=2) for rank in (0, 1)
    ]
    first, second = (_first_tokens(stream, 6) for stream in shares)
    assert first == alone[0::2]
    assert second == alone[1::2]


def test_validation_sees_every_pair_once() -> None:
    corpus = _make_corpus()
    seen = [int(i) for batch in iterate_once(corpus, 40) for i in batch.source_ids[:, 0]]
    assert sorted(seen) == list(range(100, 140))


def test_text_becomes_ids_with_eos() -> None:
    tokenizer = make_tokenizer()
    pairs = [(SENTENCES[0], SENTENCES[2]), (SENTENCES[1], SENTENCES[3])]
    corpus = tokenize_corpus(pairs, tokenizer, max_source_tokens=500, max_target_tokens=500)
    assert corpus.sources[1].tolist() == tokenizer.encode_source(SENTENCES[1])
    assert corpus.targets[0].tolist() == tokenizer.encode_target(SENTENCES[2])
    assert (len(corpus), corpus.num_skipped) == (2, 0)


def test_pairs_over_a_limit_are_left_out_and_counted() -> None:
    tokenizer = make_tokenizer()
    longest = len(tokenizer.encode_source("a cat"))
    pairs = [("a cat", "um gato"), (SENTENCES[0], "um gato"), ("a cat", SENTENCES[2])]
    corpus = tokenize_corpus(
        pairs, tokenizer, max_source_tokens=longest, max_target_tokens=len(SENTENCES[2]) // 2
    )
    assert (len(corpus), corpus.num_skipped) == (1, 2)


def test_batch_moves_to_a_device_as_a_whole() -> None:
    batch = _make_corpus().batch(np.arange(3)).to(torch.device("meta"))
    tensors = (batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    assert all(tensor.is_meta for tensor in tensors)


def test_stream_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        _open(Corpus(sources=Sentences(), targets=Sentences(), pad_id=EOS))
