from __future__ import annotations

from pathlib import Path

import torch

from model.checkpoint import load_model
from model.checkpoint_store import CheckpointStore
from tests.tiny_models import make_model, make_tokenizer


def _save(store: CheckpointStore, step: int, *, is_best: bool = False) -> Path:
    model = make_model(seed=step)
    optimizer = torch.optim.Adam(model.parameters())
    return store.save(step, model, make_tokenizer(), optimizer, {"step": step}, is_best=is_best)


def test_empty_store_has_neither_last_nor_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "none", keep=2)
    assert store.last is None
    assert store.best is None
    assert store.steps() == []


def test_last_and_best_name_whole_checkpoints(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    best, last = _save(store, 9, is_best=True), _save(store, 10)
    assert (store.best, store.last) == (best, last)
    assert (tmp_path / "last").resolve() == last.resolve()
    expected = make_model(seed=9).source_embedding.weight
    assert torch.equal(load_model(tmp_path / "best").source_embedding.weight, expected)


def test_old_checkpoints_go_but_the_best_stays(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in range(1, 7):
        _save(store, step, is_best=step == 2)
    assert [path.name for path in store.steps()] == [
        "step-00000002",
        "step-00000005",
        "step-00000006",
    ]


def test_checkpoint_that_was_cut_off_is_not_seen(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    whole = _save(store, 1)
    (tmp_path / ".step-00000002.partial").mkdir()
    assert store.last == whole


def test_average_takes_the_newest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=5)
    for step in (1, 2, 3):
        _save(store, step)
    averaged = load_model(store.save_average(2, make_tokenizer()))
    weights = [make_model(seed=seed).source_embedding.weight for seed in (2, 3)]
    assert torch.allclose(averaged.source_embedding.weight, (weights[0] + weights[1]) / 2)
