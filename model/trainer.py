"""The training loop: teacher forcing, Adam, warm-up, clipping, accumulation, validation, checkpoints (section 5).

A checkpoint holds weights, moments and place in the data; what dropout draws depends on the seed, the number of the
update and the process alone, on every device. So on a CPU a resumed run gives bit for bit what a run gives that was
never stopped. Of several processes each works on its share of an update, and the first one writes.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.checkpoint import (
    TRAINER_FILE,
    WEIGHTS_FILE,
    load_config,
    load_trainer_state,
    load_weights,
    read_tensors,
)
from model.checkpoint_store import CheckpointStore
from model.data import Batch, BatchStream, Corpus, StreamPosition, iterate_once
from model.errors import CheckpointError, TrainingError
from model.loss import translation_loss
from model.lr_scheduler import InverseSquareRootSchedule, paper_peak, set_learning_rate
from model.processes import Processes, choose_device, without_exchange
from model.tokenizer import Tokenizer
from model.train_config import TrainingSection
from model.training_log import TrainingLog
from model.transformer import Transformer

_ADAM_BETAS = (0.9, 0.98)
_ADAM_EPS = 1e-9


@dataclass(slots=True)
class Progress:
    """How far a run has come: plain values that a checkpoint keeps."""

    step: int = 0
    """Updates that were made."""

    position: StreamPosition = field(default_factory=StreamPosition)
    """Place in the stream of batches."""

    target_tokens: int = 0
    """Real target tokens that were learned from."""

    best_loss: float | None = None
    """Lowest held-out loss (plain, a token)."""

    stale_validations: int = 0
    """Validations since then."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        """Read back what `to_dict` gave."""
        return cls(**{**values, "position": StreamPosition(**values["position"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one update did."""

    loss: float
    """Label-smoothed, a token."""

    nll: float
    """Without smoothing, a token."""

    gradient_norm: float
    """Before clipping."""

    learning_rate: float
    target_tokens: int


class TeacherForcing(nn.Module):
    """The loss as a module, which is what `DistributedDataParallel` takes."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        """Share the weights of `model`."""
        super().__init__()
        self.model = model
        self._smoothing = smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Give the sums over the real tokens of a batch: loss, and plain negative log-likelihood. Shapes ()."""
        sums = translation_loss(self.model, batch, self._smoothing)
        return sums.loss, sums.nll


class Trainer:
    """Trains one model on one corpus, update by update."""

    def __init__(  # noqa: PLR0913 - the parts of a run, each made by a function of model.train
        self,
        *,
        model: Transformer,
        tokenizer: Tokenizer,
        train: Corpus,
        valid: Corpus | None,
        config: TrainingSection,
        seed: int,
        store: CheckpointStore,
        log: TrainingLog,
        processes: Processes | None = None,
        score: Callable[[Transformer], dict[str, float]] | None = None,
        on_checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the parts of a run; nothing is trained or written yet.

        Without `processes` this one is alone, on the device that `config` names. `score` gives held-out scores of the
        model by name, for the log; `on_checkpoint` is called when a checkpoint is complete.
        """
        self._processes = processes or Processes(device=choose_device(config.device))
        self.device = self._processes.device
        self.model = model.to(self.device)
        self._loss = self._processes.share(TeacherForcing(self.model, config.label_smoothing))
        self.progress = Progress()
        self._tokenizer = tokenizer
        self._train = train
        self._valid = valid
        self._config = config
        self._seed = seed
        self._store = store
        self._log = log
        self._score = score
        self._on_checkpoint = on_checkpoint
        self._optimizer = torch.optim.Adam(
            model.parameters(), lr=0.0, betas=_ADAM_BETAS, eps=_ADAM_EPS, fused=True
        )
        self._schedule = create_schedule(config, model.config.d_model)
        self._stream = self._open_stream()
        if self._processes.world_size > 1:
            self._settle_exchange()

    def resume(self) -> None:
        """Go on from the last checkpoint of the store, if it has one.

        Raises:
            CheckpointError: It is of another model.
            TrainingError: Not every process sees it.
        """
        last = self._store.last
        (num_seeing,) = self._processes.sum(last is not None)
        if num_seeing not in (0, self._processes.world_size):
            raise TrainingError(
                f"{self._store.directory}: only {num_seeing:.0f} of {self._processes.world_size} processes "
                f"see the last checkpoint. All machines must share the folder of the run."
            )
        if last is None:
            return
        if load_config(last) != self.model.config:
            raise CheckpointError(
                f"{last}: was made with another [model]; give the changed one another `output`."
            )
        load_weights(self.model, read_tensors(last / WEIGHTS_FILE), last / WEIGHTS_FILE)
        values = load_trainer_state(last, self.model, self._optimizer)
        try:
            self.progress = Progress.from_dict(values)
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                f"{last / TRAINER_FILE}: lacks how far the run had come."
            ) from error
        self._stream = self._open_stream()
        self._log.write("resume", checkpoint=str(last), step=self.progress.step)

    def train(self) -> None:
        """Train to the end, or until the held-out loss has not fallen for `patience` validations."""
        config, progress = self._config, self.progress
        self._log.start_at(progress.step)
        window: list[StepStats] = []
        since = time.monotonic()
        while progress.step < config.max_steps and not self._is_stale():
            window.append(self.step())
            self._log.show_step(progress.step)
            is_last = progress.step == config.max_steps
            if is_last or progress.step % config.log_every_steps == 0:
                self._log_steps(window, time.monotonic() - since)
                window, since = [], time.monotonic()
            is_best = False
            if self._valid and (is_last or progress.step % config.validate_every_steps == 0):
                is_best = self._validate(self._valid)
                since = time.monotonic()
            due = progress.step % config.checkpoint_every_steps == 0
            if is_last or is_best or due or self._is_stale():
                self._save(is_best=is_best)
                since = time.monotonic()
        if config.average_checkpoints and self._processes.is_first:
            path = self._store.save_average(config.average_checkpoints, self._tokenizer)
            self._log.write("average", checkpoint=str(path))
        self._processes.wait()  # torchrun would end those that still write when others have left

    def step(self) -> StepStats:
        """Make one update from `accumulation` batches; the loss is a mean over all their target tokens.

        Raises:
            TrainingError: Loss or gradient is no longer a number; the weights are as before the update.
        """
        self.model.train()
        self._optimizer.zero_grad(set_to_none=True)
        batches = self._stream.take(self._config.accumulation)
        (total,) = self._processes.sum(sum(batch.num_target_tokens for batch in batches))
        self._seed_dropout()
        loss, nll = self._add_gradients(batches, total)
        limit = self._config.clip_norm or math.inf
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        self._require_finite(loss, norm)
        rate = self._schedule(self.progress.step + 1)
        set_learning_rate(self._optimizer, rate)
        self._optimizer.step()
        self.progress.step += 1
        self.progress.position = self._stream.position
        self.progress.target_tokens += int(total)
        return StepStats(
            loss=loss, nll=nll, gradient_norm=norm, learning_rate=rate, target_tokens=int(total)
        )

    def _add_gradients(self, batches: list[Batch], num_tokens: float) -> tuple[float, float]:
        """Differentiate the mean loss of an update of `num_tokens` real tokens in all processes; give both means."""
        # The exchange takes the mean over the processes, and what is wanted is their sum.
        weight = self._processes.world_size / num_tokens
        loss = nll = 0.0
        for number, batch in enumerate(batches, start=1):
            is_last = number == len(batches)
            with nullcontext() if is_last else without_exchange(self._loss):
                with self._autocast():
                    batch_loss, batch_nll = self._loss(batch.to(self.device))
                (batch_loss * weight).backward()
            loss += batch_loss.item() / num_tokens
            nll += batch_nll.item() / num_tokens
        loss, nll = self._processes.sum(loss, nll)
        return loss, nll

    def _settle_exchange(self) -> None:
        """Differentiate one pair for nothing.

        `DistributedDataParallel` sorts its buckets anew after the first exchange, and a sum of more than two numbers
        depends on the order: a resumed run must not begin with an order that the other had left behind.
        """
        loss, _ = self._loss(self._train.batch(np.arange(1)).to(self.device))
        loss.backward()
        self._optimizer.zero_grad(set_to_none=True)

    def _seed_dropout(self) -> None:
        place = (self._seed, self.progress.step, self._processes.rank)
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))

    @torch.no_grad()
    def held_out_nll(self, corpus: Corpus) -> float:
        """Give the mean negative log-likelihood of a target token, without dropout or smoothing."""
        self.model.eval()
        nll, num_tokens = 0.0, 0
        place, step = self._processes.rank, self._processes.world_size
        for batch in islice(iterate_once(corpus, self._config.batch_tokens), place, None, step):
            with self._autocast():
                sums = translation_loss(self.model, batch.to(self.device), smoothing=0.0)
            nll += sums.nll.item()
            num_tokens += sums.num_tokens
        nll, total = self._processes.sum(nll, num_tokens)
        return nll / total

    def _validate(self, corpus: Corpus) -> bool:
        """Measure the held-out loss; True when it is the lowest so far."""
        nll = self.held_out_nll(corpus)
        best = self.progress.best_loss
        is_best = best is None or nll < best
        if is_best:
            self.progress.best_loss = nll
        self.progress.stale_validations = 0 if is_best else self.progress.stale_validations + 1
        fields: dict[str, Any] = {
            "nll": nll,
            "perplexity": math.exp(min(nll, 100.0)),
            "best": is_best,
        }
        if self._score and self._processes.is_first:  # the others wait at their next exchange
            fields["scores"] = self._score(self.model)
        self._log.write("validation", step=self.progress.step, **fields)
        return is_best

    def _is_stale(self) -> bool:
        return 0 < self._config.patience <= self.progress.stale_validations

    def _save(self, *, is_best: bool) -> None:
        if not self._processes.is_first:
            return
        path = self._store.save(
            self.progress.step,
            self.model,
            self._tokenizer,
            self._optimizer,
            self.progress.to_dict(),
            is_best=is_best,
        )
        self._log.write("checkpoint", step=self.progress.step, path=str(path), best=is_best)
        self._on_checkpoint()

    def _log_steps(self, window: list[StepStats], seconds: float) -> None:
        num_tokens = sum(stats.target_tokens for stats in window)
        self._log.write(
            "step",
            step=self.progress.step,
            epoch=self.progress.position.epoch,
            loss=sum(stats.loss * stats.target_tokens for stats in window) / num_tokens,
            nll=sum(stats.nll * stats.target_tokens for stats in window) / num_tokens,
            gradient_norm=window[-1].gradient_norm,
            learning_rate=window[-1].learning_rate,
            tokens_per_second=num_tokens / max(seconds, 1e-9),
            target_tokens=self.progress.target_tokens,
        )

    def _require_finite(self, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        last = self._store.last
        kept = f"The last good checkpoint is {last}." if last else "No checkpoint was written yet."
        raise TrainingError(
            f"Step {self.progress.step + 1}: the loss is {loss} and the norm of its gradient {norm}. "
            f"{kept} Try a lower `learning_rate`, more `warmup_steps`, a lower `clip_norm` or "
            f'`precision` "float32".'
        )

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type,
            dtype=torch.bfloat16,
            enabled=self._config.precision == "bfloat16",
        )

    def _open_stream(self) -> BatchStream:
        return BatchStream(
            self._train,
            batch_tokens=self._config.batch_tokens,
            seed=self._seed,
            position=self.progress.position,
            rank=self._processes.rank,
            world_size=self._processes.world_size,
        )


def create_schedule(config: TrainingSection, d_model: int) -> InverseSquareRootSchedule:
    """Give the learning rate that a configuration asks for."""
    cooldown_start = config.max_steps - config.cooldown_steps
    return InverseSquareRootSchedule(
        peak=config.learning_rate or paper_peak(d_model, config.warmup_steps),
        warmup_steps=config.warmup_steps,
        cooldown_start=cooldown_start if config.cooldown_steps else None,
        cooldown_end=config.max_steps,
    )
