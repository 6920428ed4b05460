"""Bundles of tiny random models, exported for real (a few seconds each): share them through session fixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from export.bundle import Bundle, Limits, Precision
from export.calibration import measure_ranges
from export.exporter import Companions, ModelFacts, export_bundle
from export.shortlist import Shortlist
from model.checkpoint import load_model, save_model
from tests.tiny_models import SENTENCES, make_model, make_tokenizer

LIMITS = Limits(max_source_tokens=256, max_target_tokens=256)


def make_facts(**fields: Any) -> ModelFacts:
    """Describe a model that nobody should use."""
    known: dict[str, Any] = {
        "name": "tiny",
        "version": "1",
        "source_language": "en",
        "target_language": "pt",
        "license": "CC0-1.0",
        "limits": LIMITS,
    }
    return ModelFacts(**{**known, **fields})


def make_checkpoint(directory: Path, *, seed: int = 0, spread: float = 1.0, **fields: Any) -> Path:
    """Write a random model with a vocabulary of its own; `fields` are of its configuration."""
    tokenizer = make_tokenizer()
    ids = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
        "eos_id": tokenizer.eos_id,
        "pad_id": tokenizer.pad_id,
        "bos_id": tokenizer.bos_id,
    }
    save_model(directory, make_model(seed=seed, spread=spread, **{**ids, **fields}), tokenizer)
    return directory


def make_bundle(
    directory: Path,
    precision: Precision,
    *,
    shortlist: Shortlist | None = None,
    knows_ranges: bool = False,
    **fields: Any,
) -> Bundle:
    """Export a random model, its ranges measured on text or not; its checkpoint stays in `checkpoint` beside it."""
    checkpoint = make_checkpoint(directory / "checkpoint", **fields)
    ranges = None
    if knows_ranges:
        sources = make_tokenizer().encode_source_batch(list(SENTENCES))
        ranges = measure_ranges(load_model(checkpoint).eval(), sources)
    companions = Companions(shortlist=shortlist, ranges=ranges)
    return export_bundle(checkpoint, directory / "bundle", precision, make_facts(), companions)


def make_shortlist(*, num_frequent: int = 40, most: int = 6, seed: int = 0) -> Shortlist:
    """Draw lists for the vocabulary of `make_checkpoint`: none to `most` words for each source word."""
    tokenizer, rng = make_tokenizer(), np.random.default_rng(seed)
    lengths = rng.integers(0, most + 1, tokenizer.source_vocab_size)
    words = np.setdiff1d(
        np.arange(tokenizer.target_vocab_size),
        [tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id],
    )
    frequent = [tokenizer.eos_id, *rng.choice(words, num_frequent - 1, replace=False).tolist()]
    return Shortlist(
        frequent=np.array(frequent, np.uint16),
        offsets=np.concatenate([[0], lengths.cumsum()]).astype(np.uint32),
        targets=rng.choice(words, int(lengths.sum())).astype(np.uint16),
    )
