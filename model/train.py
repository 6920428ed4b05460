"""Training from a configuration file (Vaswani et al. 2017, section 5): prepares the parts of a run and starts the loop.

A run is one folder: `config.toml` as it was last used, `provenance.jsonl`, the vocabulary, `log.jsonl`, `curves.png`,
and `checkpoints/` with `last`, `best` and perhaps `averaged`. Running the same configuration again goes on from `last`.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from model.checkpoint import WEIGHTS_FILE, load_config, load_weights, read_tensors
from model.checkpoint_store import CheckpointStore
from model.config import TransformerConfig
from model.data import Corpus, tokenize_corpus
from model.errors import DataError, TrainingError
from model.evaluate import evaluate
from model.generate import SearchOptions, create_translate
from model.parallel_text import ParallelFile, read_pairs
from model.processes import Processes, join_processes
from model.provenance import append_provenance, describe_run
from model.tokenizer import Tokenizer, train_tokenizer
from model.train_config import TrainConfig
from model.train_config_file import load_train_config
from model.trainer import Trainer
from model.training_log import TrainingLog
from model.transformer import Transformer

LOG_FILE = "log.jsonl"


def run(config_path: Path) -> None:
    """Train as a TOML file says, or go on where an earlier run of the same file stopped.

    Raises:
        ModelError: Configuration, data or checkpoint cannot be used, or the loss is no longer a number.
    """
    config = load_train_config(config_path)
    with _naming(config.output), join_processes(config.training.device) as processes:
        config.output.mkdir(parents=True, exist_ok=True)
        with _open_log(config, processes) as log:
            _create_trainer(config, processes, log).train()


@contextmanager
def _naming(output: Path) -> Iterator[None]:
    """Tell with errors of the system that name no file, such as a full disk, which run they stopped."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.strerror:
            raise
        raise TrainingError(f"{output}: {error.strerror}.") from error


def _open_log(config: TrainConfig, processes: Processes) -> TrainingLog:
    max_steps = config.training.max_steps
    if processes.is_first:
        events = config.output / "tensorboard" if config.training.tensorboard else None
        return TrainingLog(config.output / LOG_FILE, max_steps=max_steps, event_directory=events)
    return TrainingLog(Path(os.devnull), max_steps=max_steps, console=Console(quiet=True))


def _create_trainer(config: TrainConfig, processes: Processes, log: TrainingLog) -> Trainer:
    """Make the parts of a run, put them together and go on from the last checkpoint, telling each step."""
    store = CheckpointStore(config.output / "checkpoints", keep=config.training.keep_checkpoints)
    log.write(
        "start",
        config=str(config.path),
        torch=torch.__version__,
        device=str(processes.device),
        processes=processes.world_size,
    )
    if processes.is_first:
        _keep_origin(config, processes, log)
    tokenizer = _prepare_together(config, store.last, processes)
    log.write("vocabulary", pieces=tokenizer.vocab_size, joint=tokenizer.is_joint)
    train, valid = load_corpora(config, tokenizer)
    log.write(
        "data",
        train_pairs=len(train),
        valid_pairs=len(valid) if valid else 0,
        skipped_pairs=train.num_skipped + (valid.num_skipped if valid else 0),
    )
    torch.manual_seed(config.seed)
    model = create_model(config, tokenizer)
    log.write("model", parameters=sum(p.numel() for p in model.parameters()))
    trainer = Trainer(
        model=model,
        tokenizer=tokenizer,
        train=train,
        valid=valid,
        config=config.training,
        seed=config.seed,
        store=store,
        log=log,
        processes=processes,
        score=_create_score(config, tokenizer),
        on_checkpoint=_create_painter(config.output, log),
    )
    trainer.resume()
    return trainer


def _keep_origin(config: TrainConfig, processes: Processes, log: TrainingLog) -> None:
    """Leave in the folder of the run what it is made of, and tell when data is not what it was."""
    used = config.output / "config.toml"
    if used.resolve() != config.path.resolve():
        shutil.copyfile(config.path, used)
    description = describe_run(config, processes)
    for path in append_provenance(config.output / "provenance.jsonl", description):
        log.write("changed", file=path, meaning="the run began with other content")


def _create_score(
    config: TrainConfig, tokenizer: Tokenizer
) -> Callable[[Transformer], dict[str, float]] | None:
    """Make the function that scores a model on the first held-out pairs; None when that is not wanted."""
    pairs = list(islice(read_pairs(config.data.valid), config.training.score_pairs))
    if not pairs:
        return None
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    greedy = SearchOptions(beam_size=1, max_target_tokens=config.data.max_target_tokens)

    def score(model: Transformer) -> dict[str, float]:
        model.eval()
        scores = evaluate(create_translate(model, tokenizer, greedy), sources, references)
        return {score.metric: round(score.value, 2) for score in scores}

    return score


def _create_painter(output: Path, log: TrainingLog) -> Callable[[], None]:
    """Make the function that draws the curves of the run; without matplotlib it says so, and training goes on."""
    try:
        from model.curves import draw_curves  # noqa: PLC0415 - drawing must not be a reason to fail
    except ModuleNotFoundError as error:
        log.write("curves", missing=error.name)
        return lambda: None
    return lambda: draw_curves(output / LOG_FILE, output / "curves.png")


def _prepare_together(
    config: TrainConfig, checkpoint: Path | None, processes: Processes
) -> Tokenizer:
    """Let the first process prepare the vocabulary, and the others take what it made."""
    if processes.is_first:
        tokenizer = prepare_tokenizer(config, checkpoint)
        processes.wait()
        return tokenizer
    processes.wait()
    is_given = checkpoint or config.model.start_from or config.tokenizer.path
    return prepare_tokenizer(config, checkpoint or (None if is_given else config.output))


def prepare_tokenizer(config: TrainConfig, checkpoint: Path | None = None) -> Tokenizer:
    """Load the vocabulary of a run (a checkpoint's wins), or train it and keep it in the run's folder."""
    origin = checkpoint or config.model.start_from
    if origin is not None:
        return Tokenizer.load_directory(origin)
    section = config.tokenizer
    if section.path is not None:
        return Tokenizer.load(section.path, section.target_path)

    def learn(sides: Callable[[tuple[str, str]], tuple[str, ...]]) -> bytes:
        pairs = islice(read_pairs(config.data.train), section.max_sentences)
        return train_tokenizer(
            (text for pair in pairs for text in sides(pair)),
            vocab_size=section.vocab_size,
            kind=section.kind,
            normalization=section.normalization,
            byte_fallback=section.byte_fallback,
            split_digits=section.split_digits,
        )

    if section.joint:
        tokenizer = Tokenizer(learn(lambda pair: pair))
    else:
        tokenizer = Tokenizer(learn(lambda pair: pair[:1]), learn(lambda pair: pair[1:]))
    tokenizer.save(config.output)
    return tokenizer


def create_model(config: TrainConfig, tokenizer: Tokenizer) -> Transformer:
    """Create the model with fresh weights, or with those of the checkpoint to start from."""
    start = config.model.start_from
    if start is not None:
        model = Transformer(dataclasses.replace(load_config(start), **config.model.fields))
        load_weights(model, read_tensors(start / WEIGHTS_FILE), start / WEIGHTS_FILE)
        return model
    bos_id = tokenizer.bos_id
    fields: dict[str, Any] = {
        **config.model.fields,
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
        "pad_id": tokenizer.pad_id,
        "eos_id": tokenizer.eos_id,
        "bos_id": tokenizer.pad_id if bos_id is None else bos_id,
    }
    if bos_id is None:
        fields["start_from_zero_embedding"] = True
    if not tokenizer.is_joint:
        fields.setdefault("tie_embeddings", "decoder")
    return Transformer(TransformerConfig.from_dict(fields))


def load_corpora(config: TrainConfig, tokenizer: Tokenizer) -> tuple[Corpus, Corpus | None]:
    """Read and tokenize the training data and, if there is one, the held-out set."""

    def load(files: tuple[ParallelFile, ...], name: str) -> Corpus:
        corpus = tokenize_corpus(
            read_pairs(files),
            tokenizer,
            max_source_tokens=config.data.max_source_tokens,
            max_target_tokens=config.data.max_target_tokens,
        )
        if not len(corpus):
            raise DataError(
                f"{config.path}: [data] `{name}` leaves no sentence pair "
                f"({corpus.num_skipped} are longer than the limits)."
            )
        return corpus

    valid = load(config.data.valid, "valid") if config.data.valid else None
    return load(config.data.train, "train"), valid
