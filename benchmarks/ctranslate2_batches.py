"""CTranslate2 behind a request-level batcher: one `translate_batch` a batch."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ctranslate2

from benchmarks.ctranslate2_engine import thread_choices
from benchmarks.request_batcher import OnResults
from service.request import FinishReason, Hypothesis, Outcome, SequenceResult
from service.request import Sequence as Sentence

__all__ = ["CTranslate2Batches", "load_fastest"]

_VOCABULARY_FILE = "shared_vocabulary.json"
_TRIAL_BATCHES = 2
"""Batches for each core when the choices of threads are compared."""


class CTranslate2Batches:
    """One translator; see `benchmarks.request_batcher.BatchTranslator`.

    Each batch has the options of its first sentence: all calls of a measurement have the same.
    """

    def __init__(self, directory: Path, *, compute_type: str, threads: tuple[int, int]) -> None:
        """Load a model that `benchmarks.ctranslate2_model` wrote."""
        self.num_workers, intra_threads = threads
        self._translator = ctranslate2.Translator(
            str(directory),
            device="cpu",
            compute_type=compute_type,
            inter_threads=self.num_workers,
            intra_threads=intra_threads,
        )
        self._tokens: list[str] = json.loads((directory / _VOCABULARY_FILE).read_text("utf-8"))
        self._ids = {token: token_id for token_id, token in enumerate(self._tokens)}

    def translate(self, sentences: Sequence[Sentence], on_results: OnResults) -> None:
        options = sentences[0].options
        answers = self._translator.translate_batch(
            [[self._tokens[token_id] for token_id in each.source_ids] for each in sentences],
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            max_decoding_length=max(sentence.max_length for sentence in sentences),
            disable_unk=True,
        )
        on_results(
            [
                self._result(sentence, answer.hypotheses[0])
                for sentence, answer in zip(sentences, answers, strict=True)
            ]
        )

    def _result(self, sentence: Sentence, tokens: Sequence[str]) -> SequenceResult:
        """CTranslate2 is not asked for scores, which it would have to compute."""
        best = Hypothesis(
            token_ids=tuple(self._ids[token] for token in tokens),
            log_prob=0.0,
            score=0.0,
            finish_reason=FinishReason.STOP,
        )
        return SequenceResult(
            sequence_id=sentence.sequence_id, outcome=Outcome.FINISHED, hypotheses=(best,)
        )


def load_fastest(directory: Path, batch: Sequence[Sentence], num_cores: int) -> CTranslate2Batches:
    """Load int8 with the choice of threads that translates copies of a batch soonest."""
    choices = [
        CTranslate2Batches(directory, compute_type="int8", threads=threads)
        for threads in thread_choices(num_cores)
    ]
    for each in choices:  # warms up
        _seconds(each, batch, each.num_workers)
    return min(choices, key=lambda each: _seconds(each, batch, _TRIAL_BATCHES * num_cores))


def _seconds(batches: CTranslate2Batches, batch: Sequence[Sentence], count: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(batches.num_workers) as pool:
        for _ in pool.map(lambda _: batches.translate(batch, lambda results: None), range(count)):
            pass
    return time.perf_counter() - began
