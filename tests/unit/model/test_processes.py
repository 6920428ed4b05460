from __future__ import annotations

import pytest
import torch
from torch import nn

from model.errors import TrainingError
from model.processes import Processes, choose_device, join_processes, without_exchange


def test_without_torchrun_there_is_one_process_that_writes() -> None:
    with join_processes("cpu", environment={}) as processes:
        assert processes == Processes(device=torch.device("cpu"), rank=0, world_size=1)
        assert processes.is_first
        assert processes.sum(1.5, 2.0) == [1.5, 2.0]


def test_module_of_one_process_is_not_wrapped() -> None:
    module = nn.Linear(1, 1)
    assert Processes(device=torch.device("cpu")).share(module) is module
    with without_exchange(module):
        module(torch.ones(1)).backward()
    assert module.weight.grad is not None


def test_device_that_is_not_there_is_refused() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in {"cpu", "cuda"}
    with pytest.raises(TrainingError, match="must be auto, cpu or cuda, but is 'abacus'"):
        choose_device("abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_named() -> None:
    with pytest.raises(TrainingError, match="sees no GPU"):
        choose_device("cuda")


def test_each_process_of_a_machine_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto", local_rank=1) == torch.device("cuda:1")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("cpu", local_rank=1) == torch.device("cpu")
    with pytest.raises(TrainingError, match="There are 2 GPUs here: start no more processes"):
        choose_device("auto", local_rank=2)
    with pytest.raises(TrainingError, match=r'`device` is "cuda:1", but each of several processes'):
        choose_device("cuda:1", local_rank=0)
