"""Several processes that train one model: torchrun starts them, each takes its share of every update.

    torchrun --nproc-per-node 4 dragoman.py train CONFIG.toml

Each process holds the whole model and works on batches of its own. `DistributedDataParallel` adds up the gradients
while they are still being computed; sums of the losses are added up here. Without torchrun there is one process, and
nothing in this module costs anything.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import torch
import torch.distributed

# Functions of this module have the process group as a default argument. Imported (by DDP) when there is one already,
# they would keep it and its threads alive beyond `destroy_process_group`, and a thread that is still busy when the
# interpreter ends aborts the process.
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model.errors import TrainingError

_PATIENCE = timedelta(hours=2)
"""How long the others wait while the first process learns a vocabulary, or one of them tokenizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """This process's place among those that train together."""

    device: torch.device
    """Where this process computes."""

    rank: int = 0
    """Number of this process, from 0."""

    world_size: int = 1
    """Number of all processes, on all machines."""

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes: log, checkpoints, vocabulary."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Add up each value over all processes, in float64; every process gets the same sums.

        Raises:
            TrainingError: One of the others has ended.
        """
        if self.world_size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        try:
            torch.distributed.all_reduce(total)
        except RuntimeError as error:
            raise TrainingError(
                "Another process of this training has ended; its own message says why."
            ) from error
        return cast(list[float], total.tolist())

    def wait(self) -> None:
        """Wait until every process has come here."""
        self.sum(0.0)

    def share(self, module: nn.Module) -> nn.Module:
        """Wrap a module so that its gradients become the mean over all processes; alone it stays as it is."""
        if self.world_size == 1:
            return module
        return DistributedDataParallel(module, forward_sync_buffers=False)  # they are constants


def without_exchange(module: nn.Module) -> AbstractContextManager[None]:
    """Keep the gradients of a shared module to this process: for all batches of an update but the last."""
    if isinstance(module, DistributedDataParallel):
        return cast(AbstractContextManager[None], module.no_sync())
    return nullcontext()


@contextmanager
def join_processes(
    device_name: str, environment: Mapping[str, str] = os.environ
) -> Iterator[Processes]:
    """Meet the other processes that torchrun started; without torchrun, be the only one.

    Args:
        device_name: "auto", "cpu", "cuda", or one GPU of several.
        environment: Where torchrun says who is who.

    Yields:
        The place of this process. GPUs talk through NCCL, CPUs through Gloo.
    """
    world_size = int(environment.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield Processes(device=choose_device(device_name))
        return
    device = choose_device(device_name, local_rank=int(environment["LOCAL_RANK"]))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield Processes(device=device, rank=int(environment["RANK"]), world_size=world_size)
    finally:
        gc.collect()  # modules that were shared refer to themselves, and to the group
        torch.distributed.destroy_process_group()


def choose_device(name: str, *, local_rank: int | None = None) -> torch.device:
    """Turn "auto" into the GPU where there is one, else the CPU.

    Args:
        name: "auto" or what PyTorch calls a device.
        local_rank: Number of this process on this machine when several train together: each takes a GPU of its own.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainingError(f"`device` must be auto, cpu or cuda, but is {name!r}.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainingError(f"`device` is {name!r}, but PyTorch sees no GPU here.")
    if local_rank is None or device.type != "cuda":
        return device
    return torch.device("cuda", _own_gpu(device, local_rank))


def _own_gpu(device: torch.device, local_rank: int) -> int:
    if device.index is not None:
        raise TrainingError(
            f'`device` is "{device}", but each of several processes needs a GPU of its own: '
            f'set it to "auto" or "cuda".'
        )
    if local_rank >= torch.cuda.device_count():
        raise TrainingError(
            f"There are {torch.cuda.device_count()} GPUs here: start no more processes on one machine "
            f"(--nproc-per-node)."
        )
    return local_rank
