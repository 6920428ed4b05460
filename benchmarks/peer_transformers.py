"""Hugging Face transformers beside us: the same weights in float32 at beam 4, batch 32."""

from __future__ import annotations

from benchmarks.comparison import compare, in_one_call
from benchmarks.engine import Search
from benchmarks.part import Absolute, CannotRunError, Result
from benchmarks.stand import BATCH_SIZE, Stand
from benchmarks.throughput import NUM_TOKENS

__all__ = ["measure"]


def measure(stand: Stand) -> Result:
    """The embedded model: our float32 against theirs, and the share of equal greedy translations."""
    try:
        from benchmarks.transformers_engine import TransformersEngine
    except ModuleNotFoundError as error:
        raise CannotRunError(f"needs `{error.name}` (extra `bench`)") from error
    model = stand.model("tiny")
    ours = model.dragoman("float32", stand.num_cores)
    theirs = TransformersEngine(model.transformer, model.special_tokens, stand.num_cores)
    sources = stand.usual_sources(model, BATCH_SIZE)
    greedy = Search(beam_size=1)
    pairs = zip(ours.translate(sources, greedy), theirs.translate(sources, greedy), strict=True)
    identical = sum(one == other for one, other in pairs) / len(sources)
    search = Search(beam_size=4, num_tokens=NUM_TOKENS)
    found = compare([ours], [theirs], in_one_call(sources, search), 2 if stand.quick else 5)
    key = "tiny.fp32.beam4.transformers.throughput"
    tokens = len(sources) * NUM_TOKENS
    return Result(
        ratios={key: found.speed_up, "tiny.fp32.beam1.transformers.identical": identical},
        absolutes=[
            Absolute(what=f"{key}: {found.our_label}", value=tokens / found.ours, unit="tokens/s"),
            Absolute(
                what=f"{key}: {found.their_label}", value=tokens / found.theirs, unit="tokens/s"
            ),
        ],
        samples={key: found.samples},
    )
