"""How fast is the served engine on a GPU, beside torch on the same GPU, and does it say what the CPU says?

`benchmarks/gpu.sh` makes an environment for it. The embedded en-pt checkpoint is exported to float16 into a scratch
folder. Throughput is measured with targets of a forced length, from source ids to target ids; equality with
translations that end where the model ends them, against the float32 engine on the CPU. `--provider cpu` is a rehearsal
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime as ort
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import load_texts
from benchmarks.dragoman_engine import DragomanEngine
from benchmarks.engine import Ids, Search, TranslationEngine
from benchmarks.gpu_operators import Operators, count_operators, misplaced
from benchmarks.machine import describe_machine, versions
from benchmarks.timing import interleave, median
from benchmarks.torch_engine import TorchEngine
from export.bundle import Bundle, Precision
from export.exporter import ModelFacts, export_bundle, suppressed_ids
from model.checkpoint import load_model
from model.tokenizer import Tokenizer
from service.config import SchedulerConfig
from service.engine.base import Engine
from service.engine.device_engine import load_device_engine
from service.engine.device_memory import Device
from service.engine.onnx_engine import load_onnx_engine
from service.engine.threads import available_cores

__all__ = ["main"]

_CHECKPOINT = Path(__file__).resolve().parent.parent / "model" / "pretrained" / "en-pt.checkpoint"
_LEAST_EQUAL = 0.9
"""Share of translations that must be those of the CPU: float16 rounds, so close decisions may fall otherwise."""
_LEAST_RATIO = 1.0
_EXIT_MISSED = 1
_EXIT_NO_GPU = 2
_LIMITS = SchedulerConfig(
    max_shared_rows=4096,
    max_batch_tokens=1_000_000,
    max_cache_bytes=8 * 1024**3,
    max_encode_tokens=32_768,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Target tokens a second of both engines for the same work."""

    batch_size: int
    beam_size: int
    torch: float
    dragoman: float
    samples: dict[str, list[float]]
    """Seconds of each run."""

    @property
    def ratio(self) -> float:
        """How many times as much we do in the same time."""
        return self.dragoman / self.torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """How many translations are the same as on the CPU in float32."""

    beam_size: int
    equal: int
    sentences: int

    @property
    def share(self) -> float:
        """1.0 is all."""
        return self.equal / self.sentences


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when something is not as it should be, 2 without a GPU."""
    arguments = _parse_arguments(argv)
    if arguments.provider == "cuda" and not torch.cuda.is_available():
        print("There is no CUDA GPU here, or torch cannot use it: nothing was measured.")
        return _EXIT_NO_GPU
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.scratch or Path(scratch)
        bundles = {precision: _export(directory, precision) for precision in ("float16", "float32")}
        engine = load_device_engine(
            bundles["float16"],
            provider=arguments.provider,
            device=Device(arguments.provider),
            max_encode_tokens=_LIMITS.max_encode_tokens,
        )
        sources = _sources(max(arguments.batch_sizes))
        operators = count_operators(bundles["float16"], arguments.provider, sources[0], directory)
        speeds = [
            _measure(engine, bundles["float16"], sources[:batch_size], beam_size, arguments)
            for batch_size in arguments.batch_sizes
            for beam_size in (1, 4)
        ]
        plain = load_onnx_engine(bundles["float32"])
        equalities = [_compare(engine, plain, sources, beam_size) for beam_size in (1, 4)]
    faults = _faults(speeds, equalities, operators, arguments.provider)
    _print(speeds, equalities, operators, faults)
    if arguments.json is not None:
        report = _report(speeds, equalities, operators, faults, arguments.provider)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return _EXIT_MISSED if faults else 0


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 256], metavar="N")
    parser.add_argument("--tokens", type=int, default=32, help="forced length of the targets")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine that count")
    parser.add_argument(
        "--scratch", type=Path, help="where bundles go; else a folder that is removed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="what was measured")
    return parser.parse_args(argv)


def _export(directory: Path, precision: Precision) -> Bundle:
    facts = ModelFacts(
        name="en-pt", version="1", source_language="en", target_language="pt", license="MPL-2.0"
    )
    return export_bundle(_CHECKPOINT, directory / f"en-pt.{precision}", precision, facts)


def _sources(count: int) -> list[Ids]:
    """Built-in sentences, then pairs of them: all different."""
    texts = load_texts()
    texts += [f"{one} {other}" for one in texts for other in texts]
    encoded = Tokenizer.load_directory(_CHECKPOINT).encode_source_batch(texts[:count])
    return [tuple(source) for source in encoded]


def _measure(
    engine: Engine,
    bundle: Bundle,
    sources: Sequence[Ids],
    beam_size: int,
    arguments: argparse.Namespace,
) -> Throughput:
    """Time one batch in both engines, in turn."""
    search = Search(beam_size=beam_size, num_tokens=arguments.tokens)
    theirs: TranslationEngine = TorchEngine(
        load_model(_CHECKPOINT),
        suppressed_ids(bundle.manifest.special_tokens),
        device=arguments.provider,
        dtype=torch.float16 if arguments.provider == "cuda" else torch.float32,
        num_sentences=len(sources),
    )
    ours = DragomanEngine("Dragoman", engine, 1, num_sentences=len(sources), limits=_LIMITS)
    samples = interleave(
        {
            "torch": partial(theirs.translate, sources, search),
            "dragoman": partial(ours.translate, sources, search),
        },
        arguments.rounds,
    )
    num_tokens = len(sources) * arguments.tokens
    return Throughput(
        batch_size=len(sources),
        beam_size=beam_size,
        torch=num_tokens / median(samples, "torch"),
        dragoman=num_tokens / median(samples, "dragoman"),
        samples=samples,
    )


def _compare(engine: Engine, plain: Engine, sources: Sequence[Ids], beam_size: int) -> Equality:
    search = Search(beam_size=beam_size)
    ours = DragomanEngine("device", engine, 1, num_sentences=len(sources), limits=_LIMITS)
    theirs = DragomanEngine("CPU", plain, available_cores())
    pairs = zip(ours.translate(sources, search), theirs.translate(sources, search), strict=True)
    equal = sum(one == other for one, other in pairs)
    return Equality(beam_size=beam_size, equal=equal, sentences=len(sources))


def _faults(
    speeds: Sequence[Throughput],
    equalities: Sequence[Equality],
    operators: Operators,
    provider: str,
) -> list[str]:
    faults = misplaced(operators, provider)
    for each in equalities:
        if each.share < _LEAST_EQUAL:
            faults.append(
                f"beam {each.beam_size}: only {each.equal} of {each.sentences} translations are "
                "those of the CPU"
            )
    if provider == "cuda":  # a CPU is no place for float16
        faults += [
            f"batch {each.batch_size}, beam {each.beam_size}: slower than torch"
            for each in speeds
            if each.ratio < _LEAST_RATIO
        ]
    return faults


def _print(
    speeds: Sequence[Throughput],
    equalities: Sequence[Equality],
    operators: Operators,
    faults: Sequence[str],
) -> None:
    console = Console()
    table = Table("batch", "beam", "torch, tokens/s", "Dragoman, tokens/s", "ratio")
    for each in speeds:
        table.add_row(
            str(each.batch_size),
            str(each.beam_size),
            f"{each.torch:,.0f}",
            f"{each.dragoman:,.0f}",
            f"{each.ratio:.2f}",
        )
    console.print(table)
    for equality in equalities:
        console.print(
            f"beam {equality.beam_size}: {equality.equal} of {equality.sentences} translations are "
            "those of the CPU in float32"
        )
    for name, counts in operators.items():
        console.print(f"{name}: {sum(counts.values())} operators of two decoder steps")
    for fault in faults:
        console.print(f"fault: {fault}")


def _report(
    speeds: Sequence[Throughput],
    equalities: Sequence[Equality],
    operators: Operators,
    faults: Sequence[str],
    provider: str,
) -> dict[str, Any]:
    """The content of the JSON file: ratios first."""
    device = torch.cuda.get_device_name() if provider == "cuda" else "cpu"
    return {
        "ratios": {
            f"gpu.beam{each.beam_size}.batch{each.batch_size}": each.ratio for each in speeds
        },
        "faults": list(faults),
        "device": device,
        "provider": provider,
        "throughput": [asdict(each) for each in speeds],
        "equality": [{**asdict(each), "share": each.share} for each in equalities],
        "operators": operators,
        "machine": describe_machine(),
        "versions": {**versions(), "onnxruntime": ort.__version__, "cuda": torch.version.cuda},
    }


if __name__ == "__main__":
    sys.exit(main())
