from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from model.checkpoint import load_model
from model.checkpoint_store import CheckpointStore
from model.data import BatchStream, Corpus, Sentences
from model.errors import CheckpointError, TrainingError
from model.loss import translation_loss
from model.tokenizer import Tokenizer
from model.train_config import TrainingSection
from model.trainer import Trainer
from model.training_log import TrainingLog
from model.transformer import Transformer
from tests.tiny_models import make_config, make_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture
def make_trainer(tmp_path: Path, tokenizer: Tokenizer) -> Iterator[Any]:
    """Build trainers that share one folder, as runs of the same configuration do."""
    logs: list[TrainingLog] = []

    def make(*, dropout: float = 0.1, d_ff: int = 32, valid: bool = True, **fields: Any) -> Trainer:
        settings = {"learning_rate": 1e-2, "warmup_steps": 2, "batch_tokens": 40, "device": "cpu"}
        log = TrainingLog(tmp_path / "log.jsonl", max_steps=10, console=Console(file=io.StringIO()))
        logs.append(log)
        torch.manual_seed(1)
        return Trainer(
            model=Transformer(make_config(dropout=dropout, d_ff=d_ff)),
            tokenizer=tokenizer,
            train=_make_corpus(30),
            valid=_make_corpus(6) if valid else None,
            config=TrainingSection(**{**settings, **fields}),
            seed=3,
            store=CheckpointStore(tmp_path / "checkpoints", keep=3),
            log=log,
        )

    yield make
    for log in logs:
        log.__exit__(None, None, None)


def _make_corpus(num_pairs: int) -> Corpus:
    """Give pairs whose target is the source backwards."""
    random = torch.Generator().manual_seed(num_pairs)
    sources = [
        torch.randint(3, 12, (int(torch.randint(1, 6, (1,), generator=random)),), generator=random)
        for _ in range(num_pairs)
    ]
    return Corpus(
        sources=Sentences([[*ids.tolist(), 2] for ids in sources]),
        targets=Sentences([[*ids.flip(0).tolist(), 2] for ids in sources]),
        pad_id=2,
    )


def _weights(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_loss_falls(make_trainer: Any) -> None:
    trainer = make_trainer(dropout=0.0)
    losses = [trainer.step().loss for _ in range(40)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_first_loss_is_the_mean_over_the_tokens_of_the_batch(make_trainer: Any) -> None:
    trainer = make_trainer(dropout=0.0)
    (batch,) = BatchStream(_make_corpus(30), batch_tokens=40, seed=3).take(1)
    sums = translation_loss(trainer.model, batch, 0.1)
    stats = trainer.step()
    assert stats.loss == pytest.approx(sums.loss.item() / sums.num_tokens)
    assert stats.nll == pytest.approx(sums.nll.item() / sums.num_tokens)
    assert stats.target_tokens == sums.num_tokens == int(batch.target_mask.sum())


def test_accumulated_batches_make_one_update_over_all_their_tokens(make_trainer: Any) -> None:
    trainer = make_trainer(dropout=0.0, accumulation=3, clip_norm=0.0)
    model = Transformer(trainer.model.config)
    model.load_state_dict(trainer.model.state_dict())
    batches = BatchStream(_make_corpus(30), batch_tokens=40, seed=3).take(3)
    assert len({batch.num_target_tokens for batch in batches}) > 1
    total = sum((translation_loss(model, batch, 0.1).loss for batch in batches), torch.zeros(()))
    num_tokens = sum(batch.num_target_tokens for batch in batches)
    (total / num_tokens).backward()
    stats = trainer.step()
    assert stats.loss == pytest.approx(total.item() / num_tokens)
    expected = model.encoder.layers[0].feed_forward.linear_in.weight.grad
    actual = trainer.model.encoder.layers[0].feed_forward.linear_in.weight.grad
    assert torch.allclose(actual, expected, atol=1e-6)


def test_gradients_are_clipped_to_the_limit(make_trainer: Any) -> None:
    trainer = make_trainer(clip_norm=0.01)
    stats = trainer.step()
    assert stats.gradient_norm > 0.01
    norm = torch.nn.utils.get_total_norm([p.grad for p in trainer.model.parameters()])
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


def test_rate_follows_the_schedule(make_trainer: Any) -> None:
    trainer = make_trainer(learning_rate=None, warmup_steps=4)
    rates = [trainer.step().learning_rate for _ in range(6)]
    assert rates == pytest.approx(
        [16**-0.5 * min(step**-0.5, step * 4**-1.5) for step in range(1, 7)]
    )


def test_bfloat16_trains_and_keeps_float32_weights(make_trainer: Any) -> None:
    trainer = make_trainer(precision="bfloat16")
    dtypes: set[torch.dtype] = set()
    trainer.model.output_projection.register_forward_hook(
        lambda _module, _inputs, output: dtypes.add(output.dtype)
    )
    assert math.isfinite(trainer.step().loss)
    assert dtypes == {torch.bfloat16}
    assert {tensor.dtype for tensor in trainer.model.state_dict().values()} == {torch.float32}


def test_killed_run_resumes_bit_for_bit(make_trainer: Any, tmp_path: Path) -> None:
    straight = make_trainer(max_steps=11, checkpoint_every_steps=100)
    losses = [straight.step().loss for _ in range(11)]

    killed = make_trainer(max_steps=5, checkpoint_every_steps=5, validate_every_steps=2)
    killed.train()
    for _ in range(3):  # what was done after the last checkpoint is lost
        killed.step()

    resumed = make_trainer(max_steps=11)
    resumed.resume()
    assert resumed.progress.step == 5
    assert [resumed.step().loss for _ in range(6)] == losses[5:]
    expected = _weights(straight.model)
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, expected[name])
    assert resumed.progress.target_tokens == straight.progress.target_tokens
    assert resumed.progress.position == straight.progress.position


def test_finished_run_does_nothing_more(make_trainer: Any) -> None:
    make_trainer(max_steps=3).train()
    again = make_trainer(max_steps=3)
    again.resume()
    before = _weights(again.model)
    again.train()
    assert again.progress.step == 3
    assert all(torch.equal(t, before[n]) for n, t in again.model.state_dict().items())


def test_run_of_another_model_is_not_continued(make_trainer: Any) -> None:
    make_trainer(max_steps=1).train()
    other = make_trainer(max_steps=1, d_ff=8)
    with pytest.raises(CheckpointError, match=r"another \[model\]"):
        other.resume()


@pytest.mark.parametrize("content", ["{}", '{"step": 1, "position": {"x": 1}}', "[", "[]"])
def test_broken_progress_is_named(make_trainer: Any, tmp_path: Path, content: str) -> None:
    make_trainer(max_steps=1).train()
    (tmp_path / "checkpoints" / "last" / "trainer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"trainer\.json"):
        make_trainer(max_steps=1).resume()


def test_loss_that_is_no_number_stops_before_the_update(make_trainer: Any) -> None:
    make_trainer(max_steps=2).train()
    trainer = make_trainer()
    trainer.resume()
    with torch.no_grad():
        trainer.model.encoder.layers[0].feed_forward.linear_in.weight[0, 0] = float("nan")
    before = _weights(trainer.model)
    with pytest.raises(TrainingError, match=r"Step 3: the loss is nan .*step-00000002.*learning_"):
        trainer.step()
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, before[name]) or name.endswith("linear_in.weight")
    assert trainer.progress.step == 2


def test_best_checkpoint_has_the_lowest_held_out_loss(make_trainer: Any, tmp_path: Path) -> None:
    trainer = make_trainer(max_steps=12, validate_every_steps=3, checkpoint_every_steps=100)
    trainer.train()
    validations = _events(tmp_path, "validation")
    assert [event["step"] for event in validations] == [3, 6, 9, 12]
    lowest = min(event["nll"] for event in validations)
    assert trainer.progress.best_loss == lowest
    best = make_trainer(dropout=0.0)
    best.model.load_state_dict(load_model(tmp_path / "checkpoints" / "best").state_dict())
    assert best.held_out_nll(_make_corpus(6)) == pytest.approx(lowest, rel=1e-6)


def test_held_out_loss_is_the_mean_over_all_tokens(make_trainer: Any) -> None:
    trainer = make_trainer(dropout=0.5)
    corpus = _make_corpus(6)
    trainer.model.eval()
    sums = [
        translation_loss(trainer.model, corpus.batch(torch.tensor([i]).numpy()), 0.0)
        for i in range(6)
    ]
    expected = sum(s.nll.item() for s in sums) / sum(s.num_tokens for s in sums)
    trainer.model.train()
    assert trainer.held_out_nll(corpus) == pytest.approx(expected, rel=1e-5)


def test_training_stops_when_the_held_out_loss_no_longer_falls(make_trainer: Any) -> None:
    trainer = make_trainer(
        max_steps=50, learning_rate=1e-12, validate_every_steps=1, patience=3, dropout=0.0
    )
    trainer.progress.best_loss = 0.0
    trainer.train()
    assert trainer.progress.step == 3
    assert trainer.progress.stale_validations == 3


def test_average_of_the_last_checkpoints_is_written(make_trainer: Any, tmp_path: Path) -> None:
    make_trainer(max_steps=6, checkpoint_every_steps=2, average_checkpoints=2, valid=False).train()
    folder = tmp_path / "checkpoints"
    name = "source_embedding.tokens.weight"
    averaged = load_model(folder / "averaged").state_dict()[name]
    last = [load_model(folder / f"step-0000000{step}").state_dict()[name] for step in (4, 6)]
    assert torch.allclose(averaged, (last[0] + last[1]) / 2, atol=1e-7)
    assert not (folder / "best").exists()


def test_log_has_a_line_for_each_interval(make_trainer: Any, tmp_path: Path) -> None:
    make_trainer(max_steps=7, log_every_steps=3, valid=False).train()
    steps = _events(tmp_path, "step")
    assert [event["step"] for event in steps] == [3, 6, 7]
    assert all(event["tokens_per_second"] > 0 for event in steps)
    assert steps[-1]["target_tokens"] > steps[0]["target_tokens"]
