"""The end of the decoder for a vocabulary shortlist: only the words of each sentence's own list are looked at.

`ColumnsGraph` fetches the columns of the output projection that a batch needs; `ShortlistDecoderGraph` is the decoder
step with these columns as an input. What a row gets must not depend on whose words the other columns are, nor on how
many there are: each row's own logits are put side by side in the order of the words before anything goes over them. A
list is filled up to whole blocks with logits of -inf, which add exact zeros behind everything else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.candidates import best_candidates, divide, edit
from export.graphs import DecoderBody, vocabulary_table
from export.layers import LayerFactory
from model.transformer import Transformer

__all__ = ["ColumnsGraph", "ShortlistDecoderGraph"]


class ColumnsGraph(nn.Module):
    """Target words (U,) to their columns of the output projection, as `ShortlistDecoderGraph` reads them."""

    def __init__(
        self, transformer: Transformer, layers: LayerFactory, suppressed_ids: Sequence[int] = ()
    ) -> None:
        """Take the output projection of `transformer`; `suppressed_ids` have a bias of -inf."""
        super().__init__()
        self.columns = layers.columns(*vocabulary_table(transformer, suppressed_ids))

    def forward(self, column_ids: Tensor) -> tuple[Tensor, ...]:
        """Look up weights (D, U), biases (U,) and, with int8, scales (U,)."""
        return tuple(self.columns(column_ids))


class ShortlistDecoderGraph(nn.Module):
    """One token of each row to the best candidates of its sentence's list, with the caches one token longer."""

    def __init__(self, transformer: Transformer, layers: LayerFactory, max_length: int) -> None:
        """Take the decoder of `transformer` without its output projection."""
        super().__init__()
        self.body = DecoderBody(transformer, layers, max_length)
        self.product = layers.product()

    def forward(  # noqa: PLR0913, PLR0917 - one argument for each input of the graph
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        total_length: Tensor,
        encoder_attention_mask: Tensor,
        lane_rows: Tensor,
        row_lanes: Tensor,
        num_candidates: Tensor,
        edit_positions: Tensor,
        edit_scales: Tensor,
        edit_biases: Tensor,
        log_prob_rows: Tensor,
        caches: list[tuple[Tensor, Tensor, Tensor, Tensor]],
        columns: tuple[Tensor, ...],
        list_columns: Tensor,
        list_ids: Tensor,
    ) -> tuple[Tensor, ...]:
        """Run one step; the arguments are described in `export.signature.shortlist_decoder_inputs`."""
        hidden, presents = self.body(
            input_ids,
            past_lengths,
            total_length,
            encoder_attention_mask,
            lane_rows,
            row_lanes,
            caches,
        )
        num_lanes = torch.tensor(lane_rows.shape[1])
        sentences = divide(row_lanes, num_lanes)  # (R,)
        own_columns = F.embedding(sentences, list_columns.flatten(1))  # (R, W * 64)
        logits = self.product(hidden, *columns).gather(1, own_columns)
        log_probs = logits.log_softmax(-1)
        log_probs = edit(log_probs, edit_positions, edit_scales, edit_biases)
        places, candidate_log_probs = best_candidates(log_probs, num_candidates)
        flat = sentences.unsqueeze(1) * own_columns.shape[1] + places  # (R, N)
        candidate_ids = F.embedding(flat, list_ids.reshape(-1, 1)).squeeze(-1)
        blocks = log_probs.reshape(-1, *list_ids.shape[1:])  # (R, W, 64)
        asked_for = blocks.index_select(0, log_prob_rows)  # (M, W, 64)
        return (candidate_ids, candidate_log_probs, asked_for, *presents)
