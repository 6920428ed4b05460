"""How much of what the processor can do reaches the user: the products alone at this machine's rate, over our time.

Counted are the products with weights of encoder and decoder for the tokens that were produced, each at the rate that
this machine reaches at that very shape. Attention, norms, top-k and everything in python count as loss.
"""

from __future__ import annotations

import statistics
from collections import Counter

from benchmarks.engine import Ids, Search
from benchmarks.gemm_rate import gemm_rate
from benchmarks.part import Absolute, Result
from benchmarks.products import Shape, decoder_products, encoder_products, num_operations
from benchmarks.stand import BATCH_SIZE, Stand
from benchmarks.throughput import NUM_TOKENS
from benchmarks.timing import interleave
from export.bundle import Precision
from model.config import TransformerConfig

__all__ = ["measure"]

_BEAM_SIZE = 4
_ENCODER_TOKENS = 512
"""Source tokens of one run of the encoder, about."""


def measure(stand: Stand) -> Result:
    """The `base` model in int8, batch 32, beam 4; the float32 rate beside it."""
    model = stand.model("base")
    sources = stand.usual_sources(model, BATCH_SIZE * stand.num_cores)
    engine = model.dragoman("int8", stand.num_cores)
    search = Search(beam_size=_BEAM_SIZE, num_tokens=NUM_TOKENS)
    products = _products(model.config, sources[:: stand.num_cores])
    before = _ideal_seconds(products, "int8", stand.num_cores)
    runs = interleave({engine.label: lambda: engine.translate(sources, search)}, stand.rounds)
    after = _ideal_seconds(products, "int8", stand.num_cores)
    taken = statistics.median(runs[engine.label])
    operations = sum(num_operations(shape) * count for shape, count in products.items())
    vocabulary = max(products, key=lambda shape: shape[2])
    float_rate = gemm_rate(vocabulary, "float32", stand.num_cores)
    rates = (
        ("int8 products of the workload", operations / statistics.mean((before, after))),
        ("our engine in int8", operations / taken),
        ("float32 product with the vocabulary", float_rate),
    )
    return Result(
        ratios={"base.int8.roof": statistics.mean((before, after)) / taken},
        absolutes=[
            Absolute(
                what=f"roof: {what}, one core of {stand.num_cores}", value=rate / 1e9, unit="GOP/s"
            )
            for what, rate in rates
        ],
        samples={"base.int8.roof": {**runs, "products alone": [before, after]}},
    )


def _products(config: TransformerConfig, share: list[Ids]) -> Counter[Shape]:
    """What one worker multiplies for its share of the sentences."""
    num_tokens = sum(len(source) for source in share)
    num_runs = -(-num_tokens // _ENCODER_TOKENS)
    total: Counter[Shape] = Counter()
    for _ in range(num_runs):
        total += encoder_products(config, num_tokens // num_runs)
    total += decoder_products(config, len(share))  # before its first token a sentence is one row
    for _ in range(NUM_TOKENS - 1):
        total += decoder_products(config, len(share) * _BEAM_SIZE)
    return total


def _ideal_seconds(products: Counter[Shape], precision: Precision, num_cores: int) -> float:
    return sum(
        count * num_operations(shape) / gemm_rate(shape, precision, num_cores)
        for shape, count in products.items()
    )
