"""Our model in torch, decoding a whole batch at once: what somebody would write who wants a GPU to do it.

Lengths are forced, as in every comparison of beams, so no row ends early and nothing is looked at on the host before
the end. Positions come from tables: sines of 16-bit angles would be wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from benchmarks.engine import Ids, Search
from model.embedding import InputEmbedding
from model.masks import length_mask
from model.transformer import Transformer

__all__ = ["TorchEngine"]

_MAX_POSITIONS = 512


class TorchEngine:
    """Greedy and beam search of forced length; see `benchmarks.engine.TranslationEngine`."""

    def __init__(
        self,
        transformer: Transformer,
        suppressed_ids: Sequence[int],
        *,
        device: str,
        dtype: torch.dtype,
        num_sentences: int,
    ) -> None:
        """Copy a model to a device; `num_sentences` are decoded at once."""
        self.label = f"torch {str(dtype).removeprefix('torch.')}"
        self._model = copy.deepcopy(transformer).eval()
        for embedding in (self._model.source_embedding, self._model.target_embedding):
            _fix_positions(embedding)
        self._model.to(device=device, dtype=dtype)
        self._device = device
        self._suppressed = torch.tensor(list(suppressed_ids), dtype=torch.long, device=device)
        self._num_sentences = num_sentences

    @torch.inference_mode()
    def translate(self, sources: Sequence[Ids], search: Search) -> list[Ids]:
        order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
        found: list[Ids] = [()] * len(sources)
        for start in range(0, len(order), self._num_sentences):
            places = order[start : start + self._num_sentences]
            answers = self._decode([sources[place] for place in places], search)
            for place, answer in zip(places, answers, strict=True):
                found[place] = tuple(answer)
        return found

    def _decode(self, sources: Sequence[Ids], search: Search) -> list[list[int]]:
        if search.num_tokens is None:
            raise ValueError("The length of the targets must be given.")
        model, config, beam_size = self._model, self._model.config, search.beam_size
        num_sentences = len(sources)
        source, mask = self._pad(sources)
        cache = model.start_cache(model.encode(source, mask), mask)
        last = torch.full((num_sentences,), config.bos_id, device=self._device)
        totals = torch.zeros(num_sentences, 1, device=self._device)  # (B, rows of a sentence)
        tokens = torch.empty(num_sentences, 0, dtype=torch.long, device=self._device)
        firsts = torch.arange(num_sentences, device=self._device).unsqueeze(1)
        for _ in range(search.num_tokens):
            logits, cache = model.decode_step(last, cache)
            log_probs = self._distribution(logits)
            width = totals.shape[1]
            candidates = totals.unsqueeze(-1) + log_probs.reshape(num_sentences, width, -1)
            totals, chosen = candidates.flatten(1).topk(beam_size)  # (B, K)
            vocab_size = log_probs.shape[1]
            parents = (firsts * width + chosen // vocab_size).flatten()  # (B K,)
            last = (chosen % vocab_size).flatten()
            tokens = torch.cat([tokens[parents], last.unsqueeze(1)], dim=1)
            if beam_size > 1:
                cache = cache.gather(parents)
        answers: list[list[int]] = tokens[::beam_size].tolist()
        return answers

    def _distribution(self, logits: Tensor) -> Tensor:
        """Log-probabilities (R, V) among the tokens that are not suppressed; the end of the sentence is forbidden."""
        allowed = logits.float().index_fill_(1, self._suppressed, -torch.inf)
        log_probs = allowed.log_softmax(-1)
        log_probs[:, self._model.config.eos_id] = -torch.inf
        return log_probs

    def _pad(self, sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        lengths = [len(source) for source in sources]
        longest, pad_id = max(lengths), self._model.config.pad_id
        rows = [[*source, *[pad_id] * (longest - len(source))] for source in sources]
        counts = torch.tensor(lengths, device=self._device)
        return torch.tensor(rows, device=self._device), length_mask(counts, longest)


def _fix_positions(embedding: InputEmbedding) -> None:
    table = embedding.positions(torch.arange(_MAX_POSITIONS)).detach()
    embedding.positions = nn.Embedding.from_pretrained(table)
