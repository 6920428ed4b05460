"""How fast does training go, beside `torch.nn`'s own Transformer layers?

Both models have the same shape, take the same batches of similar length, are trained by the same optimizer in the same
type, and are timed turn by turn, so that a busy machine slows both. The other model is written as one usually writes
it: padded batches go through `nn.TransformerEncoder` and `nn.TransformerDecoder` with masks, and the loss projects
every position and ignores padding. Where there is dropout, `torch.nn` also drops attention weights and inner
activations of the feed-forward network; `--dropout 0` compares the rest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rich.console
import rich.table
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import PRESETS, TransformerConfig
from model.data import Batch, BatchStream, Corpus, Sentences
from model.embedding import InputEmbedding
from model.loss import translation_loss
from model.transformer import Transformer

WANTED_RATIO = 1.0
_SMOOTHING = 0.1
_FIRST_WORD = 4

Loss = Callable[[Batch], Tensor]


class TorchTransformer(nn.Module):
    """The layers of `torch.nn` between embeddings and an output projection like ours."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        shape: dict[str, Any] = {
            "d_model": config.d_model,
            "nhead": config.num_heads,
            "dim_feedforward": config.d_ff,
            "dropout": config.dropout,
            "batch_first": True,
        }
        self.embedding = InputEmbedding(config, config.source_vocab_size)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**shape), config.encoder_layers, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**shape), config.decoder_layers
        )
        self.projection = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        self.projection.weight = self.embedding.tokens.weight

    def forward(self, batch: Batch) -> Tensor:
        """Give the sum of the label-smoothed loss."""
        padding = ~batch.source_mask
        inputs = F.pad(batch.target_ids[:, :-1], (1, 0), value=self.config.bos_id)
        memory = self.encoder(self.embedding(batch.source_ids), src_key_padding_mask=padding)
        hidden = self.decoder(
            self.embedding(inputs),
            memory,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.shape[1]).isinf(),
            tgt_is_causal=True,
            memory_key_padding_mask=padding,
        )
        targets = batch.target_ids.masked_fill(~batch.target_mask, -100)
        return F.cross_entropy(
            self.projection(hidden).float().flatten(0, 1),
            targets.flatten(),
            reduction="sum",
            label_smoothing=_SMOOTHING,
            ignore_index=-100,
        )


def main() -> int:
    """Measure and print; 1 when ours is slower."""
    arguments = _parse_arguments()
    torch.set_num_threads(arguments.threads)
    sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), arguments.vocabulary)
    config = TransformerConfig.from_dict(
        {**PRESETS[arguments.preset], **sizes, "dropout": arguments.dropout}
    )
    dtype = torch.bfloat16 if arguments.precision == "bfloat16" else None
    ours, theirs = Transformer(config).train(), TorchTransformer(config).train()
    updates = {
        "dragoman": _updater(ours, lambda b: translation_loss(ours, b, _SMOOTHING).loss, dtype),
        "torch.nn": _updater(theirs, theirs, dtype),
    }
    stream = BatchStream(
        make_corpus(2000, arguments.vocabulary), batch_tokens=arguments.batch_tokens, seed=1
    )
    seconds, num_tokens = _measure(updates, stream, arguments.updates)
    ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
    ratio = statistics.median(ratios)
    table = rich.table.Table("model", "parameters", "target tokens/s", title=_title(arguments))
    for name, model in (("dragoman", ours), ("torch.nn", theirs)):
        size = sum(parameter.numel() for parameter in model.parameters())
        table.add_row(name, f"{size:,}", f"{num_tokens / sum(seconds[name]):,.0f}")
    table.add_row("ratio, median of the updates", "", f"{ratio:.3f}")
    rich.console.Console().print(table)
    return int(ratio < WANTED_RATIO)


def make_corpus(num_pairs: int, vocab_size: int) -> Corpus:
    """Give pairs of random words whose lengths are spread like those of written sentences."""
    random = np.random.default_rng(1)
    lengths = np.clip(random.lognormal(3.1, 0.5, num_pairs), 3, 120).astype(int)
    other = np.clip(lengths * random.normal(1.1, 0.12, num_pairs), 3, 120).astype(int)

    def words(length: int) -> list[int]:
        return [int(word) for word in random.integers(_FIRST_WORD, vocab_size, length)]

    return Corpus(
        sources=Sentences([words(length) for length in lengths]),
        targets=Sentences([words(length) for length in other]),
        pad_id=0,
    )


def _updater(model: nn.Module, loss: Loss, dtype: torch.dtype | None) -> Callable[[Batch], None]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def update(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            total = loss(batch)
        (total / batch.num_target_tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return update


def _measure(
    updates: dict[str, Callable[[Batch], None]], stream: BatchStream, num_updates: int
) -> tuple[dict[str, list[float]], int]:
    """Train all models on the same batches, turn by turn; the first two batches warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in updates}
    num_tokens = 0
    for number, batch in enumerate(stream.take(num_updates + 2)):
        num_tokens += batch.num_target_tokens if number > 1 else 0
        turns = list(updates) if number % 2 else list(reversed(updates))  # neither is always first
        for name in turns:
            began = time.perf_counter()
            updates[name](batch)
            if number > 1:
                seconds[name].append(time.perf_counter() - began)
    return seconds, num_tokens


def _title(arguments: argparse.Namespace) -> str:
    return (
        f"{arguments.preset}, {arguments.precision}, batches of {arguments.batch_tokens} tokens, "
        f"{arguments.threads} threads"
    )


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training_speed", description=__doc__)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--batch-tokens", type=int, default=2048, metavar="N")
    parser.add_argument("--vocabulary", type=int, default=8000, metavar="N")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P")
    parser.add_argument("--updates", type=int, default=30, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
