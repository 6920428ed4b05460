"""Reference decoding in torch: greedy, beam search, sampling, and scores computed again from scratch.

The served engine is tested against this module, so it is written to be read: one sentence at a time (but for
`greedy_batch`), no trick, the definitions of the beam in one place. A score is the sum of log-probabilities / L^alpha,
where L counts generated tokens, EOS included. `L_max` is the sentence's own limit: the smaller of the request's and
`2 S + 10`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.masks import length_mask
from model.sampling import SamplingOptions, sampling_distribution
from model.tokenizer import Tokenizer
from model.transformer import Transformer

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How to search for a target."""

    beam_size: int = 4
    """K: open hypotheses a step; 1 is greedy."""

    length_penalty: float = 1.0
    """alpha, at least 0."""

    max_target_tokens: int = 512
    """The request's limit, EOS included."""

    min_target_tokens: int = 0
    """Shortest answer, EOS included."""

    target_length_ratio: float = 2.0
    """L_max is at most this times the source length, plus `target_length_offset`."""

    target_length_offset: int = 10
    """See `target_length_ratio`."""

    num_hypotheses: int = 1
    """Answers that are wanted, at most `beam_size`."""

    suppressed_ids: tuple[int, ...] = ()
    """Tokens that are never generated, such as the unknown piece: the others share their probability."""

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"`beam_size` must be at least 1, but is {self.beam_size}.")
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise ValueError(
                f"`num_hypotheses` must be in [1, {self.beam_size}], but is {self.num_hypotheses}."
            )
        if self.length_penalty < 0:
            raise ValueError(f"`length_penalty` must be at least 0, but is {self.length_penalty}.")

    def max_length(self, source_length: int) -> int:
        """Give L_max of a source of so many tokens, EOS included."""
        by_source = int(self.target_length_ratio * source_length + self.target_length_offset)
        return min(self.max_target_tokens, by_source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One answer."""

    token_ids: tuple[int, ...]
    """Without EOS."""

    log_prob: float
    """Sum over the generated tokens, EOS included when there is one."""

    score: float
    """log_prob / L^alpha; higher is better."""

    truncated: bool
    """The limit ended it, not the model."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A hypothesis that may still grow."""

    token_ids: tuple[int, ...] = ()
    log_prob: float = 0.0


@dataclass(slots=True)
class _Beam:
    """State of one search."""

    rows: list[_Open] = field(default_factory=lambda: [_Open()])
    finished: list[Hypothesis] = field(default_factory=list)


@torch.inference_mode()
def beam_search(
    model: Transformer, source_ids: Sequence[int], options: SearchOptions
) -> list[Hypothesis]:
    """Find the `num_hypotheses` best targets of one source, best first.

    Each step takes the best 2 K candidates. EOS among the first K of them finishes; the best K others stay open. The
    search stops when the n-th best finished score is at least the best open log-probability / L_max^alpha (no open
    hypothesis can do better, because log-probabilities only fall), or at L_max, where the open ones finish truncated.
    With a beam of 1 the first EOS ends it, as in greedy search.
    """
    config = model.config
    device = next(model.parameters()).device
    max_length = options.max_length(len(source_ids))
    beam = _Beam()
    source, mask = _pad([source_ids], config.pad_id, device)
    cache = model.start_cache(model.encode(source, mask), mask)
    last = torch.tensor([config.bos_id], device=device)
    for length in range(1, max_length + 1):
        logits, cache = model.decode_step(last, cache)
        log_probs = _log_probs(logits, length, config.eos_id, options)  # (rows, V)
        parents = _advance(beam, log_probs, length, config.eos_id, options)
        if not beam.rows or _is_decided(beam, max_length, options):
            break
        if length == max_length:
            beam.finished += [_finish(row, length, options, truncated=True) for row in beam.rows]
            break
        last = torch.tensor([row.token_ids[-1] for row in beam.rows], device=device)
        cache = cache.gather(torch.tensor(parents, device=device))
    return _best(beam.finished)[: options.num_hypotheses]


def _advance(
    beam: _Beam, log_probs: Tensor, length: int, eos_id: int, options: SearchOptions
) -> list[int]:
    """Grow a beam by one token.

    Returns:
        Which old row each new open row comes from.
    """
    vocab_size = log_probs.shape[1]
    so_far = torch.tensor([row.log_prob for row in beam.rows], dtype=torch.float64)
    totals = (so_far.unsqueeze(1) + log_probs).flatten()  # (rows * V,)
    rows: list[_Open] = []
    parents: list[int] = []
    for rank, flat in enumerate(_best_places(totals, 2 * options.beam_size)):
        parent, token_id = divmod(flat, vocab_size)
        log_prob = float(totals[flat])
        if log_prob == _NEVER:
            break
        if token_id == eos_id:
            if rank < options.beam_size:
                ended = _Open(beam.rows[parent].token_ids, log_prob)
                beam.finished.append(_finish(ended, length, options, truncated=False))
        elif len(rows) < options.beam_size:
            rows.append(_Open((*beam.rows[parent].token_ids, token_id), log_prob))
            parents.append(parent)
    beam.rows = rows
    return parents


def _best_places(values: Tensor, count: int) -> list[int]:
    """Give the places of the best values, best first; of equals the first comes first (`topk` promises no order)."""
    count = min(count, len(values))
    worst = torch.topk(values, count).values[-1]
    places = torch.nonzero(values >= worst).squeeze(1)
    order = torch.sort(values[places], descending=True, stable=True).indices
    return [int(place) for place in places[order[:count]]]


def _is_decided(beam: _Beam, max_length: int, options: SearchOptions) -> bool:
    if len(beam.finished) < options.num_hypotheses:
        return False
    if options.beam_size == 1:  # Greedy search ends where the model does.
        return True
    nth_best = _best(beam.finished)[options.num_hypotheses - 1].score
    best_open = max(row.log_prob for row in beam.rows)
    return nth_best >= float(best_open / max_length**options.length_penalty)


def _finish(row: _Open, length: int, options: SearchOptions, *, truncated: bool) -> Hypothesis:
    return Hypothesis(
        token_ids=row.token_ids,
        log_prob=row.log_prob,
        score=float(row.log_prob / length**options.length_penalty),
        truncated=truncated,
    )


def _best(finished: list[Hypothesis]) -> list[Hypothesis]:
    return sorted(
        finished, key=lambda hypothesis: -hypothesis.score
    )  # stable: the earlier one first


def _log_probs(logits: Tensor, length: int, eos_id: int, options: SearchOptions) -> Tensor:
    """Give log-probabilities on the CPU in double precision; an EOS that comes too early is at minus infinity."""
    log_probs = _distribution(logits, options.suppressed_ids).cpu()
    if length < options.min_target_tokens:
        log_probs[:, eos_id] = _NEVER
    return log_probs


def _distribution(logits: Tensor, suppressed_ids: Sequence[int]) -> Tensor:
    """Give log-probabilities in double precision among the tokens that are not suppressed. Same shape (..., V)."""
    suppressed = torch.tensor(suppressed_ids, dtype=torch.long, device=logits.device)
    return torch.log_softmax(logits.double().index_fill(-1, suppressed, _NEVER), dim=-1)


def greedy(model: Transformer, source_ids: Sequence[int], options: SearchOptions) -> Hypothesis:
    """Take the best token at every step: what `beam_search` gives with a beam of 1."""
    return greedy_batch(model, [source_ids], options)[0]


@torch.inference_mode()
def greedy_batch(
    model: Transformer, sources: Sequence[Sequence[int]], options: SearchOptions
) -> list[Hypothesis]:
    """Decode many sources at once, greedily; a sentence that ends leaves the batch.

    Args:
        model: The model.
        sources: Token ids with EOS; B of them.
        options: `beam_size` and `num_hypotheses` are not looked at.

    Returns:
        One answer for each source, in their order.
    """
    eos_id = model.config.eos_id
    device = next(model.parameters()).device
    source, mask = _pad(sources, model.config.pad_id, device)
    cache = model.start_cache(model.encode(source, mask), mask)
    last = torch.full((len(sources),), model.config.bos_id, device=device)
    open_rows = [_Open() for _ in sources]
    alive = list(range(len(sources)))  # which sentence each row of the batch is
    answers: dict[int, Hypothesis] = {}
    length = 0
    while alive:
        length += 1
        logits, cache = model.decode_step(last, cache)
        values, chosen = _log_probs(logits, length, eos_id, options).max(dim=-1)
        kept: list[int] = []
        best = zip(alive, values.tolist(), chosen.tolist(), strict=True)
        for row, (sentence, value, token_id) in enumerate(best):
            before = open_rows[sentence]
            if token_id == eos_id:
                ended = _Open(before.token_ids, before.log_prob + value)
                answers[sentence] = _finish(ended, length, options, truncated=False)
                continue
            grown = _Open((*before.token_ids, token_id), before.log_prob + value)
            if length >= options.max_length(len(sources[sentence])):
                answers[sentence] = _finish(grown, length, options, truncated=True)
                continue
            open_rows[sentence] = grown
            kept.append(row)
        alive = [alive[row] for row in kept]
        rows = torch.tensor(kept, dtype=torch.long, device=device)
        last, cache = chosen.to(device)[rows], cache.gather(rows)
    return [answers[sentence] for sentence in range(len(sources))]


@torch.inference_mode()
def sample(
    model: Transformer,
    source_ids: Sequence[int],
    options: SearchOptions,
    sampling: SamplingOptions,
) -> Hypothesis:
    """Draw one target; `log_prob` and `score` are the model's own, whatever the temperature."""
    config = model.config
    device = next(model.parameters()).device
    random = torch.Generator().manual_seed(sampling.seed)
    source, mask = _pad([source_ids], config.pad_id, device)
    cache = model.start_cache(model.encode(source, mask), mask)
    max_length = options.max_length(len(source_ids))
    drawn = _Open()
    last = torch.tensor([config.bos_id], device=device)
    for length in range(1, max_length + 1):
        logits, cache = model.decode_step(last, cache)
        log_probs = _log_probs(logits, length, config.eos_id, options)[0]  # (V,)
        probabilities = sampling_distribution(log_probs, sampling)
        token_id = int(torch.multinomial(probabilities, 1, generator=random))
        log_prob = drawn.log_prob + float(log_probs[token_id])
        if token_id == config.eos_id:
            ended = _Open(drawn.token_ids, log_prob)
            return _finish(ended, length, options, truncated=False)
        drawn = _Open((*drawn.token_ids, token_id), log_prob)
        last = torch.tensor([token_id], device=device)
    return _finish(drawn, max_length, options, truncated=True)


@torch.inference_mode()
def score(
    model: Transformer,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    suppressed_ids: Sequence[int] = (),
) -> list[float]:
    """Compute the log-probability of each target token again, by one full pass without any cache.

    Args:
        model: The model.
        source_ids: With EOS. Length S.
        target_ids: With EOS, or without one for a truncated target. Length T.
        suppressed_ids: As in `SearchOptions`.

    Returns:
        One log-probability for each target token; their sum is `Hypothesis.log_prob`.
    """
    device = next(model.parameters()).device
    source, mask = _pad([source_ids], model.config.pad_id, device)
    target = torch.tensor([list(target_ids)], device=device)
    logits = model(source, mask, model.shift_right(target))  # (1, T, V)
    log_probs = _distribution(logits, suppressed_ids)
    picked = log_probs.gather(2, target.unsqueeze(-1))[0, :, 0]  # (T,)
    return [float(value) for value in picked]


def create_translate(
    model: Transformer, tokenizer: Tokenizer, options: SearchOptions, batch_size: int = 32
) -> Callable[[list[str]], list[str]]:
    """Make the function that `model.evaluate` takes, from a torch model.

    A beam of 1 decodes in batches of similar length, a wider one sentence by sentence. The unknown piece is suppressed.
    A text is one segment here: nothing is split, and an empty text stays empty.
    """
    suppressed = {*options.suppressed_ids, tokenizer.unk_id}
    options = dataclasses.replace(options, suppressed_ids=tuple(sorted(suppressed)))

    def translate(texts: list[str]) -> list[str]:
        sources = tokenizer.encode_source_batch(texts)
        order = sorted(
            (number for number, text in enumerate(texts) if text.strip()),
            key=lambda number: len(sources[number]),
        )
        answers = [""] * len(texts)
        step = batch_size if options.beam_size == 1 else 1
        for start in range(0, len(order), step):
            chosen = order[start : start + step]
            if options.beam_size == 1:
                found = greedy_batch(model, [sources[number] for number in chosen], options)
            else:
                found = beam_search(model, sources[chosen[0]], options)[:1]
            for number, hypothesis in zip(chosen, found, strict=True):
                answers[number] = tokenizer.decode_target(hypothesis.token_ids)
        return answers

    return translate


def _pad(
    sources: Sequence[Sequence[int]], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(source) for source in sources], device=device)
    longest = int(lengths.max())
    rows = [[*source, *[pad_id] * (longest - len(source))] for source in sources]
    return torch.tensor(rows, device=device), length_mask(lengths, longest)
