"""CTranslate2 as it is used: `Translator.translate_batch` on the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from benchmarks.engine import Ids, Search

__all__ = ["CTranslate2Engine", "thread_choices"]

_SENTENCES_A_BATCH = 32
_MAX_TARGET_TOKENS = 512


def thread_choices(num_cores: int) -> list[tuple[int, int]]:
    """The (inter, intra) threads that use all cores: as many translators as cores, or one with all of them."""
    return [(num_cores, 1), (1, num_cores)] if num_cores > 1 else [(1, 1)]


class CTranslate2Engine:
    """One translator; see `benchmarks.engine.TranslationEngine`."""

    def __init__(
        self, directory: Path, tokens: Sequence[str], compute_type: str, threads: tuple[int, int]
    ) -> None:
        """Load a model that `benchmarks.ctranslate2_model` wrote, whose vocabulary is `tokens`."""
        inter_threads, intra_threads = threads
        self.label = f"CTranslate2 {inter_threads} x {intra_threads}"
        self.translator = ctranslate2.Translator(
            str(directory),
            device="cpu",
            compute_type=compute_type,
            inter_threads=inter_threads,
            intra_threads=intra_threads,
        )
        self._tokens = tokens
        self._ids = {token: token_id for token_id, token in enumerate(tokens)}

    def translate(self, sources: Sequence[Ids], search: Search) -> list[Ids]:
        forced = search.num_tokens
        answers = self.translator.translate_batch(
            [[self._tokens[token_id] for token_id in source] for source in sources],
            beam_size=search.beam_size,
            max_batch_size=_SENTENCES_A_BATCH,
            min_decoding_length=forced or 0,
            max_decoding_length=forced or _MAX_TARGET_TOKENS,
            disable_unk=True,
        )
        return [tuple(self._ids[token] for token in answer.hypotheses[0]) for answer in answers]
