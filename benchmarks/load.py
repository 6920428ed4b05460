"""Workload (e): the server under load, beside what is built today.

Three servers with the same gRPC front stand side by side: Dragoman; a request-level dynamic batcher on our own engine;
the same batcher on CTranslate2. `python -m benchmarks.load` runs this part alone.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contenders import BATCHER, Contender, start_contenders, start_dragoman
from benchmarks.corpus import load_texts, texts_file
from benchmarks.grpc_efficiency import NUM_CLIENTS, measure_efficiency
from benchmarks.load_closed import measure_capacities, measure_clients
from benchmarks.load_open import OpenLoad, measure_rates
from benchmarks.load_range import Range, open_range
from benchmarks.part import Absolute, Result
from benchmarks.sentences import create_sentences, keep_single_sentences, keep_usual_lengths
from benchmarks.stand import Stand
from export.bundle import Bundle
from model.tokenizer import Tokenizer
from service.engine.base import Engine

__all__ = ["LoadPlan", "measure", "measure_plan"]

_CLIENTS = (1, 8, 32, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How long everything takes."""

    parts: Sequence[str] = ("closed", "efficiency", "open")
    warm_seconds: float
    closed_seconds: float
    efficiency_slices: int
    slice_seconds: float
    capacity_slices: int
    open_loads: Sequence[OpenLoad]


_QUICK = LoadPlan(
    warm_seconds=1.0,
    closed_seconds=2.0,
    efficiency_slices=3,
    slice_seconds=3.0,
    capacity_slices=2,
    open_loads=(
        OpenLoad(share=0.5, num_slices=1, slice_seconds=6.0),
        OpenLoad(share=0.7, num_slices=3, slice_seconds=7.0),
        OpenLoad(share=1.1, num_slices=1, slice_seconds=6.0),
    ),
)
_FULL = LoadPlan(
    warm_seconds=1.5,
    closed_seconds=8.0,
    efficiency_slices=7,
    slice_seconds=6.0,
    capacity_slices=3,
    open_loads=(
        OpenLoad(share=0.5, num_slices=2, slice_seconds=15.0),
        OpenLoad(share=0.7, num_slices=6, slice_seconds=15.0),
        OpenLoad(share=1.1, num_slices=2, slice_seconds=15.0),
    ),
)


def measure(stand: Stand) -> Result:
    """Everything, for the embedded model in int8."""
    return measure_plan(stand, _QUICK if stand.quick else _FULL)


def main() -> int:
    """Measure this part alone, or some of it, with other batchers."""
    arguments = _parse_arguments()
    plan = _QUICK if arguments.quick else _FULL
    loads = tuple(load for load in plan.open_loads if load.share in arguments.shares)
    plan = dataclasses.replace(plan, parts=arguments.only, open_loads=loads)
    with tempfile.TemporaryDirectory(prefix="dragoman-load-") as temporary:
        directory = arguments.work or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        stand = Stand(directory, quick=arguments.quick, texts_file=arguments.texts)
        options = ["--max-batch-sentences", str(arguments.max_batch_sentences)]
        if arguments.answers_early:
            options.append("--answers-early")
        result = measure_plan(stand, plan, options)
    _print(result)
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    parser.add_argument("--only", nargs="+", choices=_FULL.parts, default=_FULL.parts)
    parser.add_argument(
        "--shares",
        nargs="+",
        type=float,
        default=[load.share for load in _FULL.open_loads],
        help="rates of arrivals, of 0.5, 0.7 and 1.1 (default: all)",
    )
    parser.add_argument("--texts", type=texts_file, help="source sentences, one a line")
    parser.add_argument("--work", type=Path, help="keep what is written for the comparison here")
    parser.add_argument(
        "--max-batch-sentences", type=int, default=32, help="of the batchers (default: %(default)s)"
    )
    parser.add_argument(
        "--answers-early",
        action="store_true",
        help="the batcher on our engine tells a sentence when it is finished, not at the end of its batch",
    )
    return parser.parse_args()


def _print(result: Result) -> None:
    table = Table("what", "value", "unit")
    for key, value in result.ratios.items():
        table.add_row(key, f"{value:.3g}", "ratio")
    for each in result.absolutes:
        table.add_row(each.what, f"{each.value:,.4g}", each.unit)
    console = Console()
    console.print(table)
    for note in result.notes:
        console.print(f"note: {note}")


def measure_plan(stand: Stand, plan: LoadPlan, batcher_options: Sequence[str] = ()) -> Result:
    """Some of it, or for as long as is asked; `batcher_options` are those of `benchmarks.batcher_server`."""
    model = stand.model("tiny")
    bundle = model.bundle("int8")
    result = Result()
    if "efficiency" in plan.parts:
        result.merge(_measure_efficiencies(stand, plan, bundle))
    if "closed" in plan.parts or "open" in plan.parts:
        with start_contenders(
            stand.directory, bundle.directory, model.ctranslate2_directory, batcher_options
        ) as contenders:
            result.merge(asyncio.run(_measure_contenders(stand, plan, bundle, contenders)))
    return result


def _measure_efficiencies(stand: Stand, plan: LoadPlan, bundle: Bundle) -> Result:
    """With the full vocabulary as in the other comparisons, and with the shortlist, where translating costs less."""
    model = stand.model("tiny")
    engines = {"grpc.efficiency": model.onnx_engine("int8")}
    if bundle.manifest.shortlist is not None:
        engines["grpc.efficiency.shortlist"] = model.shortlist_engine()
    result = Result()
    for key, engine in engines.items():
        with start_dragoman(
            stand.directory, bundle.directory, shortlist=key.endswith("shortlist")
        ) as server:
            result.merge(asyncio.run(_measure_efficiency(stand, plan, bundle, key, engine, server)))
    return result


async def _measure_efficiency(  # noqa: PLR0913 - both sides of the comparison
    stand: Stand, plan: LoadPlan, bundle: Bundle, key: str, engine: Engine, server: Contender
) -> Result:
    tokenizer, texts = _load_texts(stand, bundle)
    usual = keep_usual_lengths(texts, tokenizer)
    async with open_range([server], usual, bundle.manifest, NUM_CLIENTS) as load:
        return await measure_efficiency(
            key,
            load,
            engine,
            create_sentences(usual, bundle.manifest, tokenizer),
            num_workers=stand.num_cores,
            num_slices=plan.efficiency_slices,
            warm_seconds=plan.warm_seconds,
            seconds=plan.slice_seconds,
        )


async def _measure_contenders(
    stand: Stand, plan: LoadPlan, bundle: Bundle, contenders: Sequence[Contender]
) -> Result:
    _, texts = _load_texts(stand, bundle)
    result = Result()
    async with open_range(contenders, texts, bundle.manifest, max(_CLIENTS)) as load:
        if "closed" in plan.parts:
            result.merge(
                await measure_clients(
                    load, _CLIENTS, warm_seconds=plan.warm_seconds, seconds=plan.closed_seconds
                )
            )
        if "open" in plan.parts:
            result.merge(await _measure_open(load, plan))
    if bundle.manifest.shortlist is not None:
        result.notes.append(
            "load: our engine uses the bundle's shortlist, on both servers, and CTranslate2 the full vocabulary "
            "(DRAGOMAN_ENGINE__SHORTLIST=false: so do all)"
        )
    return result


def _load_texts(stand: Stand, bundle: Bundle) -> tuple[Tokenizer, list[str]]:
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    texts = load_texts(stand.texts_file)
    return tokenizer, keep_single_sentences(texts, bundle.manifest, tokenizer)


async def _measure_open(load: Range, plan: LoadPlan) -> Result:
    capacities = await measure_capacities(
        load,
        num_slices=plan.capacity_slices,
        warm_seconds=plan.warm_seconds,
        seconds=plan.slice_seconds,
    )
    result = Result(
        absolutes=[
            Absolute(what=f"capacity, {name}", value=value, unit="calls/s")
            for name, value in capacities.items()
        ]
    )
    result.merge(await measure_rates(load, plan.open_loads, capacities[BATCHER]))
    return result


if __name__ == "__main__":
    sys.exit(main())
