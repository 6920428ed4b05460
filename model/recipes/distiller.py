"""The loop that walks a student through the stages of a recipe.

Several processes (`torchrun`) share the work: each takes a batch of its own for every update, the gradient is the mean,
and the first one writes. How long a stage has run is agreed on, so all of them end it at the same update.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.checkpoint import save_model
from model.errors import DataError, TrainingError
from model.processes import Processes
from model.recipes.losses import cell_imitation_loss, choose_words, distribution_loss
from model.recipes.pairs import PairBatch, PairStore
from model.recipes.progress import (
    Progress,
    load_optimizer,
    load_progress,
    save_progress,
)
from model.recipes.stages import StageConfig
from model.recipes.teacher import Teacher
from model.transformer import Transformer

logger = logging.getLogger(__name__)

_CPU_CHUNK_ROWS = 64  # rows of the whole vocabulary's logits that stay in the processor's cache
_GPU_CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillerConfig:
    """How a student is taught, whatever the stage."""

    stages: tuple[StageConfig, ...]
    """What is trained, in order."""

    run: Path
    """Folder of checkpoints and log."""

    held_out_pairs: int = 1000
    """Pairs that are never trained on and measure each stage."""

    frequent_words: int = 6144
    """Words that every batch is compared over, whether they occur in it or not."""

    random_words: int = 2048
    """Random words of each batch, which stand for all the others."""

    checkpoint_seconds: float = 180.0
    """Time between checkpoints."""

    log_steps: int = 50
    """Steps between lines of the log."""

    kept_checkpoints: int = 6
    """How many of the last stage's checkpoints are kept for averaging."""

    bf16: bool = True
    """Matrix products in bfloat16; LayerNorm, softmax and the weights themselves stay float32."""

    seed: int = 1
    """Of the order of batches and the choice of words."""


class StageLoss(nn.Module):
    """The loss of a stage as a module, which is what `DistributedDataParallel` takes."""

    def __init__(self, stage: StageConfig, teacher: Teacher, student: Transformer) -> None:
        """Share the weights of `student`; the teacher is no part of what is trained."""
        super().__init__()
        self.student = student
        self._teacher = (teacher,)  # in a tuple, so that it is not registered
        self._stage = stage

    def forward(self, batch: PairBatch, words: tuple[Tensor, Tensor] | None) -> Tensor:
        """Give the loss of a batch; a stage that compares distributions needs the `words` to compare."""
        (teacher,) = self._teacher
        if words is None:
            return cell_imitation_loss(teacher, self.student, batch)
        share_encoder = not self._stage.trains("encoder")
        return distribution_loss(teacher, self.student, batch, words, share_encoder)


class Distiller:
    """Trains one student; everything it knows is in its checkpoints, so it may be killed at any moment."""

    def __init__(
        self,
        config: DistillerConfig,
        teacher: Teacher,
        student: Transformer,
        pairs: PairStore,
        *,
        processes: Processes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take up the last checkpoint of `config.run` where there is one; `clock` gives seconds."""
        self.config = config
        self.processes = processes or Processes(device=torch.device("cpu"))
        self.teacher = teacher.to(self.processes.device)
        self.student = student.to(self.processes.device)
        self.pairs = pairs
        self.clock = clock
        if len(pairs) <= config.held_out_pairs:
            raise DataError(
                f"The data has {len(pairs)} pairs that can be used; {config.held_out_pairs} are held out, "
                "so more are needed."
            )
        order = np.random.default_rng(config.seed).permutation(len(pairs))
        self.held_out = order[: config.held_out_pairs]
        self.trained_on = order[config.held_out_pairs :]
        self.frequent = self._most_frequent(config.frequent_words)
        config.run.mkdir(parents=True, exist_ok=True)
        loaded = load_progress(config.run, student)
        self.resumed = loaded is not None
        self.progress = loaded or Progress()
        self._batches: tuple[int, list[NDArray[np.int64]]] | None = None

    def train(self) -> None:
        """Run every stage that is not done yet."""
        while self.progress.stage < len(self.config.stages):
            stage = self.config.stages[self.progress.stage]
            self._train_stage(stage)
            if self.processes.is_first:
                save_model(self.config.run / f"stage-{stage.name}", self.student)
            position = self.progress
            self.progress = Progress(
                stage=position.stage + 1, epoch=position.epoch, batch=position.batch
            )

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure the student on held-out pairs, over the whole vocabulary.

        Returns:
            `held_out_loss` (cross-entropy of the teacher's words), `held_out_divergence` (from the teacher's
            distribution) and `held_out_agreement` (share of tokens where both would choose the same word).
        """
        self.student.eval()
        sums = torch.zeros(4, dtype=torch.float64)
        batches = self.pairs.batches(self.held_out, 2048, seed=0)
        for rows in batches[self.processes.rank :: self.processes.world_size]:
            with self._autocast():
                sums += self._compare(self._load(rows))
        *totals, tokens = self.processes.sum(*sums.tolist())
        loss, divergence, agreement = (total / tokens for total in totals)
        return {
            "held_out_loss": round(loss, 4),
            "held_out_divergence": round(divergence, 4),
            "held_out_agreement": round(agreement, 4),
        }

    def _compare(self, batch: PairBatch) -> Tensor:
        inputs = self.student.shift_right(batch.target_ids)
        memory = self.teacher.encode(batch.source_ids, batch.source_mask)
        wanted = self.teacher.decode(inputs, memory, batch.source_mask)[0][batch.target_mask]
        memory = self.student.encode(batch.source_ids, batch.source_mask)
        hidden = self.student.decode(inputs, memory, batch.source_mask)[batch.target_mask]
        targets = batch.target_ids[batch.target_mask]
        sums = torch.zeros(4, dtype=torch.float64)
        size = _CPU_CHUNK_ROWS if hidden.device.type == "cpu" else _GPU_CHUNK_ROWS
        chunks = (tensor.split(size) for tensor in (wanted, hidden, targets))
        for real, given, words in zip(*chunks, strict=True):
            teacher = self.teacher.body.project(real).float().log_softmax(-1)  # (n, V)
            student = self.student.project(given).float().log_softmax(-1)
            loss = -student.gather(1, words.unsqueeze(1)).sum()
            same = (teacher.argmax(-1) == student.argmax(-1)).sum()
            divergence = (teacher.exp() * teacher.sub_(student)).sum()
            sums[:3] += torch.stack([loss, divergence, same]).double().cpu()
            sums[3] += len(words)
        return sums

    def _train_stage(self, stage: StageConfig) -> None:
        groups = stage.parameter_groups(self.student)
        optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98), eps=1e-9)
        loss = self.processes.share(StageLoss(stage, self.teacher, self.student))
        progress, limit = self.progress, stage.minutes * 60.0
        if self.resumed and progress.step > 0 and progress.seconds < limit:
            load_optimizer(self.config.run, self.student, optimizer)
        self.resumed = False
        self._log(stage, {"event": "start", **self.evaluate()})
        since_checkpoint, since_log, tokens, losses = 0.0, 0.0, 0.0, []
        while progress.seconds < limit:
            began = self.clock()
            batch = self._next_batch(stage)
            factor = stage.learning_rate_factor(progress.seconds / limit)
            losses.append(self._update(stage, loss, optimizer, batch, factor))
            spent, taught = self._agree(began, int(batch.target_mask.sum()))
            tokens += taught
            progress.step += 1
            progress.seconds += spent
            since_checkpoint += spent
            since_log += spent
            if progress.step % self.config.log_steps == 0:
                mean = torch.stack(losses).mean(0).tolist()
                rate = round(tokens / since_log)
                self._log(stage, {"loss": mean, "factor": factor, "tokens_per_second": rate})
                since_log, tokens, losses = 0.0, 0.0, []
            if since_checkpoint >= self.config.checkpoint_seconds:
                began = self.clock()
                self._checkpoint(stage, optimizer)
                progress.seconds += self._agree(began)[0]
                since_checkpoint = 0.0
        self._checkpoint(stage, optimizer)

    def _agree(self, began: float, tokens: int = 0) -> tuple[float, float]:
        """Give the seconds since `began`, a mean over the processes that is the same for all, and all their tokens."""
        seconds, total = self.processes.sum(self.clock() - began, tokens)
        return seconds / self.processes.world_size, total

    def _update(
        self,
        stage: StageConfig,
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: PairBatch,
        factor: float,
    ) -> Tensor:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self.student.train()
        with self._autocast():
            value: Tensor = loss(batch, self._choose_words(stage, batch))
        optimizer.zero_grad(set_to_none=True)
        value.sum().backward()
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        norm = float(nn.utils.clip_grad_norm_(trained, 1.0))
        if not math.isfinite(norm):
            raise TrainingError(
                f"Stage {stage.name}, step {self.progress.step + 1}: the norm of the gradient is {norm}. "
                f"The last checkpoint is {self.config.run / 'last'}."
            )
        optimizer.step()
        return value.detach()

    def _choose_words(self, stage: StageConfig, batch: PairBatch) -> tuple[Tensor, Tensor] | None:
        if stage.loss == "cells":
            return None
        seed = self.config.seed + self.progress.epoch + (self.progress.batch << 16)
        generator = torch.Generator()
        generator.manual_seed(seed)  # of the place in the data: a resumed run draws the same
        vocab_size, num_random = self.student.config.target_vocab_size, self.config.random_words
        return choose_words(batch, self.frequent, vocab_size, num_random, generator)

    def _next_batch(self, stage: StageConfig) -> PairBatch:
        """Give the batch of this process for the next update; every process takes another one."""
        progress = self.progress
        if self._batches is None or self._batches[0] != progress.epoch:
            seed = self.config.seed + progress.epoch
            batches = self.pairs.batches(self.trained_on, stage.max_batch_tokens, seed)
            self._batches = (progress.epoch, batches)
        batches = self._batches[1]
        rows = batches[(progress.batch + self.processes.rank) % len(batches)]
        progress.batch += self.processes.world_size
        if progress.batch >= len(batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
        return self._load(rows)

    def _load(self, rows: NDArray[np.int64]) -> PairBatch:
        return self.pairs.batch(rows).to(self.processes.device)

    def _checkpoint(self, stage: StageConfig, optimizer: torch.optim.Optimizer) -> None:
        if self.processes.is_first:
            save_progress(self.config.run, self.student, optimizer, self.progress)
            if self.progress.stage == len(self.config.stages) - 1:
                self._keep_for_average()
        self._log(stage, {"event": "checkpoint", **self.evaluate()})

    def _keep_for_average(self) -> None:
        kept = self.config.run / "kept"
        save_model(kept / f"step-{self.progress.step:07d}", self.student)
        for old in sorted(kept.glob("step-*"))[: -self.config.kept_checkpoints]:
            shutil.rmtree(old)

    def _most_frequent(self, count: int) -> Tensor:
        ids = self.pairs.target.ids
        some = np.asarray(ids[:: 1 + len(ids) // 5_000_000])
        counts = np.bincount(some, minlength=self.student.config.target_vocab_size)
        frequent = np.argsort(-counts, kind="stable")[:count]
        return torch.from_numpy(frequent.copy()).to(self.processes.device)

    def _autocast(self) -> torch.autocast:
        kind = self.processes.device.type
        return torch.autocast(kind, dtype=torch.bfloat16, enabled=self.config.bf16)

    def _log(self, stage: StageConfig, fields: dict[str, object]) -> None:
        if not self.processes.is_first:
            return
        progress = self.progress
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "stage": stage.name,
            "step": progress.step,
            "seconds": round(progress.seconds, 1),
            **fields,
        }
        logger.info("%s", line)
        with (self.config.run / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
