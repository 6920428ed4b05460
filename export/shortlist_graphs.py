"""The end of the decoder for a vocabulary shortlist: only the words of each sentence's own list are looked at.

`ColumnsGraph` fetches columns of the output projection; `ShortlistDecoderGraph` is the decoder step with columns as its
inputs. Two thirds of a list are frequent words, which all lists have: their columns are multiplied for all rows at
once. The others are multiplied sentence by sentence, in chunks, for the lanes of that sentence: the words of 32
sentences together are five times the words of one, so a product of all rows with all of them would be mostly of words
that a row does not look at. The logits of a lane are put side by side before anything goes over them, so what a row
gets depends on its own list alone. Lists are filled up with logits of -inf, which add exact zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from export.candidates import best_candidates, edit
from export.graphs import DecoderBody, vocabulary_table
from export.layers import LayerFactory
from export.operators import axis_size, reshape, take
from export.signature import VOCAB_BLOCK
from model.transformer import Transformer

__all__ = ["ColumnsGraph", "ShortlistDecoderGraph"]


class ColumnsGraph(nn.Module):
    """Target words (G, U) to their columns of the output projection, as `ShortlistDecoderGraph` reads them."""

    def __init__(
        self, transformer: Transformer, layers: LayerFactory, suppressed_ids: Sequence[int] = ()
    ) -> None:
        """Take the output projection of `transformer`; `suppressed_ids` have a bias of -inf."""
        super().__init__()
        self.columns = layers.columns(*vocabulary_table(transformer, suppressed_ids))

    def forward(self, column_ids: Tensor) -> tuple[Tensor, ...]:
        """Look up weights (G, D, U), biases (G, 1, U) and, with int8, scales (G, 1, U)."""
        return tuple(self.columns(column_ids))


class ShortlistDecoderGraph(nn.Module):
    """One token of each row to the best candidates of its sentence's list, with the caches one token longer."""

    def __init__(self, transformer: Transformer, layers: LayerFactory, max_length: int) -> None:
        """Take the decoder of `transformer` without its output projection."""
        super().__init__()
        self.body = DecoderBody(transformer, layers, max_length)
        self.product = layers.list_product()

    def forward(  # noqa: PLR0913, PLR0917 - one argument for each input of the graph
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        total_length: Tensor,
        encoder_attention_mask: Tensor,
        lane_heads: Tensor,
        row_heads: Tensor,
        num_candidates: Tensor,
        edit_positions: Tensor,
        edit_scales: Tensor,
        edit_biases: Tensor,
        log_prob_rows: Tensor,
        caches: list[tuple[Tensor, Tensor, Tensor, Tensor]],
        frequent: tuple[Tensor, ...],
        chunks: tuple[Tensor, ...],
        lane_rows: Tensor,
        row_lanes: Tensor,
        row_sentences: Tensor,
        chunk_rows: Tensor,
        lane_chunks: Tensor,
        list_ids: Tensor,
    ) -> tuple[Tensor, ...]:
        """Run one step; the arguments are described in `export.signature.shortlist_decoder_inputs`."""
        hidden, presents = self.body(
            input_ids,
            past_lengths,
            total_length,
            encoder_attention_mask,
            lane_heads,
            row_heads,
            caches,
        )
        logits = self.product(hidden, frequent, chunks, lane_rows, chunk_rows, lane_chunks)
        log_probs = reshape(logits.log_softmax(-1), -1)
        edited = edit(log_probs, edit_positions, edit_scales, edit_biases)
        blocks = edited.reshape(-1, *list_ids.shape[1:])  # (B * J, W, 64)
        num_blocks = axis_size(list_ids, 1)
        lane_places, lane_log_probs = best_candidates(blocks, num_candidates, num_blocks)
        places = take(lane_places, row_lanes)  # (R, N)
        first = row_sentences * (num_blocks * VOCAB_BLOCK)  # (R,)
        candidate_ids = take(reshape(list_ids, -1), first.unsqueeze(1) + places)
        asked_for = take(blocks, log_prob_rows)  # (M, W, 64)
        return (candidate_ids, take(lane_log_probs, row_lanes), asked_for, *presents)
