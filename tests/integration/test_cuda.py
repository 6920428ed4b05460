"""What only a machine with a CUDA GPU and onnxruntime-gpu can tell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks import gpu
from export.bundle import Bundle, Precision
from service.engine.device_engine import load_device_engine
from service.engine.device_memory import Device
from service.engine.load_engine import load_engine
from tests.companies import random_sequences, run, shuffles

pytestmark = pytest.mark.gpu


def test_translations_are_nearly_those_of_the_same_graphs_on_a_cpu(
    random_bundle: Callable[[Precision], Bundle],
) -> None:
    bundle = random_bundle("float16")
    engine = load_engine(bundle, provider="cuda")
    assert engine.provider == "CUDAExecutionProvider"
    sequences = random_sequences(engine.facts.vocab_size)
    expected = run(load_device_engine(bundle, provider="cpu", device=Device("cpu")), sequences)
    for order, per_step in shuffles(sequences):
        found = run(engine, order, per_step=per_step)
        same = [found[i][0].token_ids == expected[i][0].token_ids for i in expected]
        assert np.mean(same) >= 0.8


def test_the_comparison_with_torch_finds_no_fault() -> None:
    assert gpu.main(["--rounds", "1"]) == 0
