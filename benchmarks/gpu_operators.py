"""Where operators of a decoder graph really run: ONNX Runtime puts what a provider cannot do on the CPU, silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.engine import Ids
from export.bundle import Bundle
from export.runner import GraphRunner
from export.signature import DISABLED_OPTIMIZERS
from service.engine.sessions import PROVIDERS

__all__ = ["Operators", "count_operators", "misplaced"]

Operators = dict[str, dict[str, int]]
"""How often each operator ran, by provider and then by name."""

_HEAVY = ("GroupQueryAttention", "MatMul", "Gemm", "LayerNormalization", "LogSoftmax", "Exp")
"""What must run where it is fast; shapes and indices of a few numbers may run anywhere."""


def count_operators(bundle: Bundle, provider: str, source: Ids, directory: Path) -> Operators:
    """Run two decoder steps with a profile, which is left in `directory`."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(directory / "decoder")
    session = ort.InferenceSession(
        bundle.decoder_path,
        options,
        providers=[PROVIDERS[provider]],
        disabled_optimizers=list(DISABLED_OPTIMIZERS),
    )
    runner = GraphRunner(bundle)
    runner.decoder = session
    runner.greedy([source], 2)
    events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    found: Operators = {}
    for event in events:
        details = event.get("args", {})
        if event.get("cat") == "Node" and "provider" in details:
            counts = found.setdefault(details["provider"], {})
            counts[details["op_name"]] = counts.get(details["op_name"], 0) + 1
    return found


def misplaced(operators: Operators, provider: str) -> list[str]:
    """Say which heavy operators ran elsewhere than on the provider."""
    elsewhere = {
        name
        for where, counts in operators.items()
        if where != PROVIDERS[provider]
        for name in counts
    }
    faults = [
        f"{name} does not run on {PROVIDERS[provider]}" for name in _HEAVY if name in elsewhere
    ]
    if PROVIDERS[provider] not in operators:
        faults.append(f"nothing runs on {PROVIDERS[provider]}")
    return faults
