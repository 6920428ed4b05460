"""The end of the decoder for a vocabulary shortlist: only the words of each sentence's own list are looked at.

`ColumnsGraph` fetches the columns of the output projection that a batch needs; `ShortlistDecoderGraph` is the decoder
step with these columns as an input. What a row gets must not depend on whose words the other columns are, nor on how
many there are: each row's own logits are put side by side in the order of the words before anything goes over them. A
list is filled up to whole blocks with logits of -inf, which add exact zeros behind everything else.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from export.candidates import best_candidates, edit
from export.graphs import DecoderBody, vocabulary_table
from export.layers import LayerFactory
from export.operators import axis_size, pick, reshape, take
from export.signature import VOCAB_BLOCK
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
        lane_heads: Tensor,
        row_heads: Tensor,
        num_candidates: Tensor,
        edit_positions: Tensor,
        edit_scales: Tensor,
        edit_biases: Tensor,
        log_prob_rows: Tensor,
        caches: list[tuple[Tensor, Tensor, Tensor, Tensor]],
        columns: tuple[Tensor, ...],
        row_sentences: Tensor,
        list_columns: Tensor,
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
        own_columns = reshape(take(list_columns, row_sentences), 0, -1)  # (R, W * 64)
        logits = pick(self.product(hidden, *columns), own_columns)
        log_probs = reshape(logits.log_softmax(-1), -1)
        edited = edit(log_probs, edit_positions, edit_scales, edit_biases)
        blocks = edited.reshape(-1, *list_ids.shape[1:])  # (R, W, 64)
        num_blocks = axis_size(list_ids, 1)
        places, candidate_log_probs = best_candidates(blocks, num_candidates, num_blocks)
        first = row_sentences * (num_blocks * VOCAB_BLOCK)  # (R,)
        candidate_ids = take(reshape(list_ids, -1), first.unsqueeze(1) + places)  # (R, N)
        asked_for = take(blocks, log_prob_rows)  # (M, W, 64)
        return (candidate_ids, candidate_log_probs, asked_for, *presents)
