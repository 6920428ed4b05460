from __future__ import annotations

import numpy as np
import pytest

from service.engine.encoder_batches import cut_into_batches


def test_the_example_of_the_docstring() -> None:
    assert cut_into_batches([3, 8, 2, 7], 16) == [[1, 3], [0, 2]]


def test_nothing_gives_no_batches() -> None:
    assert cut_into_batches([], 100) == []


def test_a_sentence_over_the_budget_runs_alone() -> None:
    assert cut_into_batches([500, 3], 100) == [[0], [1]]


def test_much_padding_is_worth_a_run_of_its_own() -> None:
    batches = cut_into_batches([100, 90] + [10] * 20, 4096)
    assert batches == [[0, 1], list(range(2, 22))]


@pytest.mark.parametrize("seed", range(20))
def test_every_sentence_is_in_one_batch_within_the_budget(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 120, size=50).tolist()
    batches = cut_into_batches(lengths, 512)
    assert sorted(place for batch in batches for place in batch) == list(range(50))
    for batch in batches:
        assert len(batch) * max(lengths[place] for place in batch) <= 512
