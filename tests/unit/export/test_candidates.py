from __future__ import annotations

import pytest
import torch

from export.candidates import best_candidates, edit
from export.signature import VOCAB_BLOCK
from tests import eager_operators


@pytest.fixture(autouse=True)
def runtime_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx.ops, "symbolic", eager_operators.symbolic)
    monkeypatch.setattr(torch.onnx.ops, "symbolic_multi_out", eager_operators.symbolic_multi_out)


def best(log_probs: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    num_blocks = log_probs.shape[1] // VOCAB_BLOCK
    blocks = log_probs.reshape(-1, num_blocks, VOCAB_BLOCK)
    return best_candidates(blocks, torch.tensor([count]), torch.tensor([num_blocks]))


def random_log_probs(num_rows: int, vocab_size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(vocab_size)
    return torch.randn(num_rows, vocab_size, generator=generator).log_softmax(-1)


@pytest.mark.parametrize("vocab_size", [64, 128, 1024, 6400])
@pytest.mark.parametrize("count", [1, 2, 7, 32, 64])
def test_the_search_by_blocks_is_exact(vocab_size: int, count: int) -> None:
    log_probs = random_log_probs(5, vocab_size)
    ids, found = best(log_probs, count)
    expected = log_probs.sort(dim=1, descending=True)
    assert torch.equal(ids, expected.indices[:, :count])
    assert torch.equal(found, expected.values[:, :count])


def test_all_candidates_may_lie_in_one_block() -> None:
    log_probs = random_log_probs(1, 640)
    log_probs[0, 128:192] += 50
    ids, _ = best(log_probs, 10)
    assert ((ids >= 128) & (ids < 192)).all()
    assert torch.equal(ids, log_probs.topk(10).indices)


def test_each_candidate_may_lie_in_a_block_of_its_own() -> None:
    log_probs = random_log_probs(1, 640)
    far_apart = torch.arange(5, 640, 64)
    log_probs[0, far_apart] = torch.linspace(10, 20, 10)
    ids, _ = best(log_probs, 10)
    assert torch.equal(ids[0], far_apart.flip(0))


def test_impossible_words_come_last() -> None:
    log_probs = torch.full((1, 128), -torch.inf)
    log_probs[0, [3, 100]] = torch.tensor([-1.0, -0.5])
    ids, found = best(log_probs, 4)
    assert ids[0, :2].tolist() == [100, 3]
    assert found[0].tolist() == [-0.5, -1.0, -torch.inf, -torch.inf]


def test_an_edit_scales_and_shifts_one_log_probability() -> None:
    log_probs = random_log_probs(3, 64)
    before = log_probs.clone()
    positions = torch.tensor([0 * 64 + 5, 2 * 64 + 63, 1 * 64 + 0])
    scales, biases = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([-torch.inf, 0.0, -3.0])
    edited = edit(log_probs.reshape(-1), positions, scales, biases).reshape(3, 64)
    assert torch.equal(log_probs, before)
    assert edited[0, 5] == -torch.inf
    assert edited[2, 63] == 2 * before[2, 63]
    assert edited[1, 0] == -3
    assert (edited != before).sum() == 3


def test_no_edit_changes_nothing() -> None:
    log_probs = random_log_probs(3, 64).reshape(-1)
    nothing = torch.zeros(0)
    assert torch.equal(
        edit(log_probs, torch.zeros(0, dtype=torch.int64), nothing, nothing), log_probs
    )
