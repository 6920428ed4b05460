"""Checkpoints: one directory with weights, configuration, vocabulary and, while training, everything to go on exactly.

    model.safetensors    weights; tied matrices are stored once
    config.json          `TransformerConfig`
    tokenizer.spm        the vocabulary (tokenizer.source.spm and tokenizer.target.spm when it is not joint)
    trainer.safetensors  optimizer moments and random state (only in checkpoints that training resumes from)
    trainer.json         plain numbers of the optimizer and of the trainer

No pickle anywhere. A directory is written under another name and renamed when it is complete, so a checkpoint that
exists is whole.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from model.config import TransformerConfig
from model.errors import CheckpointError
from model.tokenizer import Tokenizer
from model.transformer import Transformer

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
TRAINER_TENSORS_FILE = "trainer.safetensors"
TRAINER_FILE = "trainer.json"

_RANDOM_STATE = "random_state"


@contextmanager
def replace_directory(directory: Path) -> Iterator[Path]:
    """Fill a new directory that takes the place of `directory` only when the block ends without an error.

    Yields:
        An empty directory beside it, to be filled.

    Raises:
        NotADirectoryError: A file or a link stands in its place; it is left as it is.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise NotADirectoryError(errno.ENOTDIR, "is no directory, and is not replaced", directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    finish_replacing(directory)
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        for path in (*partial.iterdir(), partial):
            _sync(path)
        if directory.exists():
            old = _old(directory)
            shutil.rmtree(old, ignore_errors=True)
            directory.rename(old)
            partial.rename(directory)
            shutil.rmtree(old)
        else:
            partial.rename(directory)
        _sync(directory.parent)
    finally:
        finish_replacing(directory)
        shutil.rmtree(partial, ignore_errors=True)


def finish_replacing(directory: Path) -> None:
    """Put back what `replace_directory` had moved aside when it was killed before the new one had its place."""
    old = _old(directory)
    if old.is_dir() and not os.path.lexists(directory):
        old.rename(directory)


def save_model(
    directory: Path,
    model: Transformer,
    tokenizer: Tokenizer | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write weights, configuration and vocabulary as a complete directory.

    Args:
        directory: Where to; what stands there is replaced as a whole.
        model: The model.
        tokenizer: Its vocabulary; None leaves it out.
        dtype: Type of the stored numbers, such as `torch.float16`; as they are unless given.
    """
    with replace_directory(directory) as partial:
        write_model(partial, model, tokenizer, dtype)


def write_model(
    directory: Path,
    model: Transformer,
    tokenizer: Tokenizer | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write the files of `save_model` into a directory that exists.

    Raises:
        CheckpointError: The disk is full, or the directory cannot be written.
    """
    _write_tensors(directory / WEIGHTS_FILE, weights_of(model, dtype), {"format": "pt"})
    _write_json(directory / CONFIG_FILE, model.config.to_dict())
    if tokenizer is not None:
        tokenizer.save(directory)


def weights_of(model: Transformer, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Give the weights by name, each matrix once: of tied names the first."""
    weights: dict[str, Tensor] = {}
    for names in _tied_names(model):
        tensor = model.state_dict()[names[0]].detach()
        weights[names[0]] = tensor.to(device="cpu", dtype=dtype or tensor.dtype).contiguous()
    return weights


def load_config(directory: Path) -> TransformerConfig:
    """Read the configuration of a checkpoint."""
    path = directory / CONFIG_FILE
    try:
        return TransformerConfig.from_dict(read_json(path))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def load_model(directory: Path, device: torch.device | str = "cpu") -> Transformer:
    """Read a model; half-precision weights become float32 again.

    Returns:
        The model in evaluation mode.

    Raises:
        CheckpointError: A file is missing or broken, or weights and configuration do not fit; the message lists what.
    """
    model = Transformer(load_config(directory))
    load_weights(model, read_tensors(directory / WEIGHTS_FILE), directory / WEIGHTS_FILE)
    return model.to(device).eval()


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy weights into a model. Of tied names any one will do.

    Args:
        model: What to fill.
        weights: Tensors by name.
        origin: The file that they came from, for messages.
    """
    given = dict(weights)
    for names in _tied_names(model):
        present = [name for name in names if name in given]
        for name in names:
            if present:
                given.setdefault(name, given[present[0]])
    state = model.state_dict()
    faults = [f"`{name}` is missing" for name in state if name not in given]
    faults += [f"`{name}` is no part of this model" for name in given if name not in state]
    faults += [
        f"`{name}` has shape {tuple(given[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in state.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if faults:
        raise CheckpointError(f"{origin}: does not fit the configuration: {'; '.join(faults)}.")
    model.load_state_dict(given)


def write_trainer_state(
    directory: Path, model: Transformer, optimizer: Optimizer, progress: Mapping[str, Any]
) -> None:
    """Write what training needs beside the weights to go on bit for bit.

    Args:
        directory: A directory that exists.
        model: The model whose parameters the optimizer holds.
        optimizer: Its moments are stored under the parameters' names.
        progress: Plain values of the trainer: step, place in the data, best loss.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {_RANDOM_STATE: torch.get_rng_state()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                tensors[f"{names[id(parameter)]}/{key}"] = value.detach().cpu().contiguous()
    _write_tensors(directory / TRAINER_TENSORS_FILE, tensors)
    _write_json(directory / TRAINER_FILE, dict(progress))


def load_trainer_state(directory: Path, model: Transformer, optimizer: Optimizer) -> dict[str, Any]:
    """Read back what `write_trainer_state` wrote, random state included.

    Returns:
        The trainer's plain values.

    Raises:
        CheckpointError: The checkpoint was not made for resuming, or of another model.
    """
    path = directory / TRAINER_TENSORS_FILE
    tensors = read_tensors(path)
    progress = read_json(directory / TRAINER_FILE)
    if _RANDOM_STATE not in tensors:
        raise CheckpointError(f"{path}: holds no random state.")
    torch.set_rng_state(tensors.pop(_RANDOM_STATE))
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition("/")
        states.setdefault(name, {})[kind] = tensor
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    unknown = sorted(set(states) - set(order))
    if unknown:
        raise CheckpointError(f"{path}: `{unknown[0]}` is no parameter that is trained.")
    content = optimizer.state_dict()
    content["state"] = {number: states[name] for number, name in enumerate(order) if name in states}
    optimizer.load_state_dict(content)
    return progress


def average_checkpoints(directories: Sequence[Path]) -> Transformer:
    """Give the model whose weights are the mean of several checkpoints' (Vaswani et al. 2017, section 6.1)."""
    if not directories:
        raise CheckpointError("There is no checkpoint to average.")
    config = load_config(directories[0])
    sums: dict[str, Tensor] = {}
    for directory in directories:
        if load_config(directory) != config:
            raise CheckpointError(f"{directory}: has another configuration than {directories[0]}.")
        weights = read_tensors(directory / WEIGHTS_FILE)
        if sums and weights.keys() != sums.keys():
            raise CheckpointError(f"{directory}: has other weights than {directories[0]}.")
        for name, tensor in weights.items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    model = Transformer(config)
    means = {name: (total / len(directories)).float() for name, total in sums.items()}
    load_weights(model, means, directories[0] / WEIGHTS_FILE)
    return model.eval()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    try:
        return load_file(str(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors: {error}") from error


def _tied_names(model: nn.Module) -> list[list[str]]:
    """Group the names of the state by the memory behind them."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def _write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    try:
        save_file(tensors, str(path), metadata=metadata)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: must hold one JSON object.")
    return content


def _old(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.old")


def _sync(path: Path) -> None:
    """Make sure that what was written is on the disk before anything refers to it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
