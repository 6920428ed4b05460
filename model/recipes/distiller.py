"""The loop that walks a student through the stages of a recipe."""

from __future__ import annotations

import json
import logging
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

_CHUNK_ROWS = 64  # rows of the whole vocabulary's logits that stay in the processor's cache


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


class Distiller:
    """Trains one student; everything it knows is in its checkpoints, so it may be killed at any moment."""

    def __init__(
        self,
        config: DistillerConfig,
        teacher: Teacher,
        student: Transformer,
        pairs: PairStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take up the last checkpoint of `config.run` where there is one; `clock` gives seconds."""
        self.config = config
        self.teacher = teacher
        self.student = student
        self.pairs = pairs
        self.clock = clock
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
        for rows in self.pairs.batches(self.held_out, 2048, seed=0):
            with self._autocast():
                sums += self._compare(self.pairs.batch(rows))
        loss, divergence, agreement = (sums[:3] / sums[3]).tolist()
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
        chunks = (tensor.split(_CHUNK_ROWS) for tensor in (wanted, hidden, targets))
        for real, given, words in zip(*chunks, strict=True):
            teacher = self.teacher.body.project(real).float().log_softmax(-1)  # (n, V)
            student = self.student.project(given).float().log_softmax(-1)
            loss = -student.gather(1, words.unsqueeze(1)).sum()
            same = (teacher.argmax(-1) == student.argmax(-1)).sum()
            divergence = (teacher.exp() * teacher.sub_(student)).sum()
            sums += torch.stack([loss, divergence, same, torch.tensor(len(words))]).double()
        return sums

    def _train_stage(self, stage: StageConfig) -> None:
        optimizer = torch.optim.Adam(
            stage.parameter_groups(self.student), betas=(0.9, 0.98), eps=1e-9
        )
        progress, limit = self.progress, stage.minutes * 60.0
        if self.resumed and progress.step > 0 and progress.seconds < limit:
            load_optimizer(self.config.run, self.student, optimizer)
        self.resumed = False
        self._log(stage, {"event": "start", **self.evaluate()})
        since_checkpoint, since_log, tokens, losses = 0.0, 0.0, 0, []
        while progress.seconds < limit:
            began = self.clock()
            batch = self._next_batch(stage)
            factor = stage.learning_rate_factor(progress.seconds / limit)
            losses.append(self._update(stage, optimizer, batch, factor))
            spent = self.clock() - began
            tokens += int(batch.target_mask.sum())
            progress.step += 1
            progress.seconds += spent
            since_checkpoint += spent
            since_log += spent
            if progress.step % self.config.log_steps == 0:
                mean = torch.stack(losses).mean(0).tolist()
                rate = round(tokens / since_log)
                self._log(stage, {"loss": mean, "factor": factor, "tokens_per_second": rate})
                since_log, tokens, losses = 0.0, 0, []
            if since_checkpoint >= self.config.checkpoint_seconds:
                began = self.clock()
                self._checkpoint(stage, optimizer)
                progress.seconds += self.clock() - began
                since_checkpoint = 0.0
        self._checkpoint(stage, optimizer)

    def _update(
        self,
        stage: StageConfig,
        optimizer: torch.optim.Optimizer,
        batch: PairBatch,
        factor: float,
    ) -> Tensor:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self.student.train()
        with self._autocast():
            loss = self._loss(stage, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(trained, 1.0, error_if_nonfinite=True)
        optimizer.step()
        return loss.detach()

    def _loss(self, stage: StageConfig, batch: PairBatch) -> Tensor:
        if stage.loss == "cells":
            return cell_imitation_loss(self.teacher, self.student, batch)
        vocab_size, num_random = self.student.config.target_vocab_size, self.config.random_words
        seed = self.config.seed + self.progress.epoch + (self.progress.batch << 16)
        generator = torch.Generator().manual_seed(
            seed
        )  # of the place in the data: a resumed run draws the same
        words = choose_words(batch, self.frequent, vocab_size, num_random, generator)
        share_encoder = not stage.trains("encoder")
        return distribution_loss(self.teacher, self.student, batch, words, share_encoder)

    def _next_batch(self, stage: StageConfig) -> PairBatch:
        progress = self.progress
        if self._batches is None or self._batches[0] != progress.epoch:
            seed = self.config.seed + progress.epoch
            batches = self.pairs.batches(self.trained_on, stage.max_batch_tokens, seed)
            self._batches = (progress.epoch, batches)
        rows = self._batches[1][progress.batch]
        progress.batch += 1
        if progress.batch == len(self._batches[1]):
            progress.epoch, progress.batch = progress.epoch + 1, 0
        return self.pairs.batch(rows)

    def _checkpoint(self, stage: StageConfig, optimizer: torch.optim.Optimizer) -> None:
        save_progress(self.config.run, self.student, optimizer, self.progress)
        if self.progress.stage == len(self.config.stages) - 1:
            kept = self.config.run / "kept"
            save_model(kept / f"step-{self.progress.step:07d}", self.student)
            for old in sorted(kept.glob("step-*"))[: -self.config.kept_checkpoints]:
                shutil.rmtree(old)
        self._log(stage, {"event": "checkpoint", **self.evaluate()})

    def _most_frequent(self, count: int) -> Tensor:
        ids = self.pairs.target.ids
        some = np.asarray(ids[:: 1 + len(ids) // 5_000_000])
        counts = np.bincount(some, minlength=self.student.config.target_vocab_size)
        return torch.from_numpy(np.argsort(-counts)[:count].copy())

    def _autocast(self) -> torch.autocast:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.bf16)

    def _log(self, stage: StageConfig, fields: dict[str, object]) -> None:
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
