"""Runs the graphs of a bundle the plain way: one row a sentence, all of the same age, no search but greedy.

The serving engine is built for speed; this is what parity checks and tests hold against the torch model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from export.bundle import Bundle
from export.lanes import place_heads
from export.signature import (
    CANDIDATE_IDS,
    CANDIDATE_LOG_PROBS,
    DISABLED_OPTIMIZERS,
    EDIT_BIASES,
    EDIT_POSITIONS,
    EDIT_SCALES,
    ENCODER_MASK,
    INPUT_IDS,
    LANE_HEADS,
    LOG_PROB_ROWS,
    LOG_PROBS,
    MIN_CAPACITY,
    MIN_LANES,
    MIN_SOURCE_LENGTH,
    NUM_CANDIDATES,
    PAST_LENGTHS,
    ROW_HEADS,
    SOURCE_MASK,
    TOTAL_LENGTH,
    cross_key,
    cross_value,
    past_self_key,
    past_self_value,
    present_cross_key,
    present_cross_value,
    present_self_key,
    present_self_value,
    self_cache_dtype,
)

__all__ = ["Arrays", "GraphRunner", "Greedy", "create_session"]

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """One greedy translation."""

    token_ids: tuple[int, ...]
    """With EOS, unless a limit came first."""

    log_probs: npt.NDArray[np.float32]
    """Of each token."""


def create_session(path: Path) -> Any:
    """Load a graph on one CPU thread, with the optimizers that the server uses."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        path,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(DISABLED_OPTIMIZERS),
    )


class GraphRunner:
    """Encoder and decoder of one bundle."""

    def __init__(self, bundle: Bundle) -> None:
        """Load both graphs."""
        self.manifest = bundle.manifest
        self.encoder = create_session(bundle.encoder_path)
        self.decoder = create_session(bundle.decoder_path)

    def encode(self, sources: Sequence[Sequence[int]], min_length: int = 0) -> Arrays:
        """Encode a batch.

        Args:
            sources: Source ids with EOS.
            min_length: Pad further than the longest needs.

        Returns:
            What the decoder wants to know of the sources, by the names of its inputs.
        """
        length = max(min_length, MIN_SOURCE_LENGTH, *map(len, sources))
        ids = np.full((len(sources), length), self.manifest.special_tokens.pad_id, np.int64)
        mask = np.zeros_like(ids)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
            mask[row, : len(source)] = 1
        given: Arrays = {ENCODER_MASK: mask}
        layers = range(self.manifest.architecture.num_decoder_layers)
        wanted = [name(i) for i in layers for name in (present_cross_key, present_cross_value)]
        names = [name(i) for i in layers for name in (cross_key, cross_value)]
        found = self.encoder.run(wanted, {INPUT_IDS: ids, SOURCE_MASK: mask})
        return given | dict(zip(names, found, strict=True))

    def start(self, num_rows: int, capacity: int) -> Arrays:
        """Create self-attention caches for `capacity` tokens, by the names of the decoder's inputs."""
        shape = self.manifest.architecture
        size = (num_rows, shape.num_heads, max(capacity, MIN_CAPACITY), shape.head_size)
        names = [
            name(i)
            for i in range(shape.num_decoder_layers)
            for name in (past_self_key, past_self_value)
        ]
        dtype = np.dtype(self_cache_dtype(self.manifest.precision, self.manifest.int8_caches))
        return {name: np.zeros(size, dtype) for name in names}

    def step(
        self,
        token_ids: npt.NDArray[np.int64],
        position: int,
        memory: Arrays,
        caches: Arrays,
        *,
        num_candidates: int = 1,
        num_lanes: int = MIN_LANES,
    ) -> Arrays:
        """Read one token of each sentence.

        Args:
            token_ids: The last token of each. Shape (R,).
            position: Its place, the same for all.
            memory: Of `encode`.
            caches: Of `start`; replaced by those that hold the new token.
            num_candidates: How many of the best to give.
            num_lanes: Lanes a sentence; all hold the same row here.

        Returns:
            `candidate_ids`, `candidate_log_probs` and `log_probs` by name.
        """
        feeds = self.decoder_feeds(token_ids, position, memory, caches, num_lanes=num_lanes)
        feeds[NUM_CANDIDATES] = np.array([num_candidates])
        layers = range(self.manifest.architecture.num_decoder_layers)
        presents = [name(i) for i in layers for name in (present_self_key, present_self_value)]
        wanted = [CANDIDATE_IDS, CANDIDATE_LOG_PROBS, LOG_PROBS]
        found = self.decoder.run(wanted + presents, feeds)
        caches.update(zip(caches, found[len(wanted) :], strict=True))
        return dict(zip(wanted, found, strict=False))

    def decoder_feeds(
        self,
        token_ids: npt.NDArray[np.int64],
        position: int,
        memory: Arrays,
        caches: Arrays,
        *,
        num_lanes: int = MIN_LANES,
    ) -> Arrays:
        """Give all inputs of a step for one candidate and without edits; arguments as in `step`."""
        num_rows = len(token_ids)
        feeds: Arrays = {
            INPUT_IDS: token_ids,
            PAST_LENGTHS: np.full(num_rows, position, np.int32),
            TOTAL_LENGTH: np.array(next(iter(caches.values())).shape[2], np.int32),
            NUM_CANDIDATES: np.array([1]),
            EDIT_POSITIONS: np.zeros(0, np.int64),
            EDIT_SCALES: np.zeros(0, np.float32),
            EDIT_BIASES: np.zeros(0, np.float32),
            LOG_PROB_ROWS: np.arange(num_rows),
        }
        return feeds | self._lanes(num_rows, num_lanes) | memory | caches

    def greedy(
        self,
        sources: Sequence[Sequence[int]],
        max_tokens: int,
        *,
        min_length: int = 0,
        spare_capacity: int = 0,
        num_lanes: int = MIN_LANES,
    ) -> list[Greedy]:
        """Translate a batch by the best word of every step.

        Args:
            sources: Source ids with EOS.
            max_tokens: The most that a translation may have.
            min_length: Pad sources further than they need.
            spare_capacity: Cache capacity that nothing needs.
            num_lanes: Lanes a sentence.
        """
        tokens = self.manifest.special_tokens
        memory = self.encode(sources, min_length)
        caches = self.start(len(sources), max_tokens + spare_capacity)
        first = tokens.pad_id if tokens.bos_id is None else tokens.bos_id
        last = np.full(len(sources), first, np.int64)
        ids, log_probs = [], []
        for position in range(max_tokens):
            found = self.step(last, position, memory, caches, num_lanes=num_lanes)
            last = found[CANDIDATE_IDS][:, 0]
            ids.append(last)
            log_probs.append(found[CANDIDATE_LOG_PROBS][:, 0])
            if all(tokens.eos_id in column for column in np.transpose(ids)):
                break
        return [
            _until_eos(np.array(row), np.array(scores), tokens.eos_id)
            for row, scores in zip(np.transpose(ids), np.transpose(log_probs), strict=True)
        ]

    def _lanes(self, num_rows: int, num_lanes: int) -> Arrays:
        """Place one row a sentence, in all of its lanes."""
        rows = np.arange(num_rows)
        lane_rows = np.repeat(rows[:, None], num_lanes, axis=1)
        num_heads = self.manifest.architecture.num_heads
        lane_heads, row_heads = place_heads(lane_rows, rows * num_lanes, num_heads)
        return {LANE_HEADS: lane_heads, ROW_HEADS: row_heads}


def _until_eos(
    ids: npt.NDArray[np.int64], log_probs: npt.NDArray[np.float32], eos_id: int
) -> Greedy:
    ends = np.flatnonzero(ids == eos_id)
    length = int(ends[0]) + 1 if len(ends) else len(ids)
    return Greedy(token_ids=tuple(ids[:length].tolist()), log_probs=log_probs[:length].copy())
