"""Stage 7 of 10, part 4: beam search over all sentences of a step at once, whatever their age and beam size.

Pure numpy. A step takes the best 2K candidates of a sentence: EOS among the first K finishes a hypothesis, the best K
others stay open. A sentence stops when nothing open can beat what is finished: when its n-th best finished score is at
least the best open log-probability / L_max^alpha, an upper bound as log-probabilities only fall. At L_max the open ones
finish by LENGTH. With K = 1 the first EOS ends the sentence, so beam 1 is greedy.

All sums are float64 of one row each: a sentence's result does not depend on its company.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.decoding.constraints import ban_eos
from service.decoding.hypotheses import BackPointers
from service.decoding.penalties import length_divisor, score
from service.request import DecodingOptions, FinishReason, Hypothesis
from service.rows import NO_EDITS, Candidates, Edits, RowMoves

__all__ = ["Advance", "BeamSearch"]

IntArray = NDArray[np.int64]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_NEVER = float("-inf")
_FAR = 1 << 40
"""More steps than anybody runs."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What a step of the search decided."""

    moves: RowMoves
    """Rows of the sentences that go on."""
    answers: dict[int, tuple[Hypothesis, ...]]
    """Answers of the sentences that ended, best first, by their place among those that ran."""


@dataclass(frozen=True, slots=True)
class _Finished:
    """A finished hypothesis; its tokens are still back-pointers."""

    score: float
    log_prob: float
    step: int
    row: int
    last_token: int | None
    """The token after the row's own, or None for EOS."""


@dataclass(slots=True)
class _Sentence:
    """What is needed of a sentence only when one of its hypotheses ends."""

    options: DecodingOptions
    max_length: int
    joined_step: int
    finished: list[_Finished]


@dataclass(slots=True)
class _Columns:
    """The same facts of all sentences as arrays, (B,) each."""

    beam_size: IntArray
    length: IntArray
    """Tokens generated so far."""
    max_length: IntArray
    min_tokens: IntArray
    divisor: Float64Array
    """L_max^alpha."""
    bar: Float64Array
    """The n-th best finished score; -inf before there are n."""
    row_count: IntArray

    def take(self, kept: IntArray) -> None:
        """Keep the sentences `kept`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name)[kept])

    def append(self, other: _Columns) -> None:
        """Append sentences."""
        for name in self.__slots__:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))


def _columns(sentences: list[_Sentence]) -> _Columns:
    """The columns of sentences that join."""
    options = [sentence.options for sentence in sentences]
    return _Columns(
        beam_size=np.array([o.beam_size for o in options], np.int64),
        length=np.zeros(len(options), np.int64),
        max_length=np.array([s.max_length for s in sentences], np.int64),
        min_tokens=np.array([o.min_target_tokens for o in options], np.int64),
        divisor=np.array(
            [length_divisor(s.max_length, s.options.length_penalty) for s in sentences], np.float64
        ),
        bar=np.full(len(options), _NEVER),
        row_count=np.ones(len(options), np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The best candidates of each sentence, best first: (B, M) each, M = 2 x the largest beam at most.

    Where none of the best K says EOS they all stay open, whatever comes after them: then M = K.
    """

    rows: IntArray
    token_ids: IntArray
    log_probs: Float64Array
    stays_open: BoolArray
    """Among the best K that are not EOS."""
    best_open: Float64Array
    """The best log-probability of those, -inf where there are none; (B,)."""
    finishes: BoolArray | None = None
    """EOS among the first K; None when no candidate is EOS."""


@dataclass(frozen=True, slots=True)
class _Survivors:
    """What of a ranking goes on."""

    width: int
    """Candidates of each sentence, M."""
    chosen: IntArray
    """Their places in the ranking, (R',)."""
    row_count: IntArray
    """(B,)"""
    is_same: bool
    """Whether every sentence has so many rows already."""


def _spread(
    values: NDArray[np.generic], places: IntArray, shape: tuple[int, int], filler: float
) -> NDArray[Any]:
    """Lay rows (R, N) out with the same room for each sentence, (B, M)."""
    spread = np.full(
        (shape[0] * shape[1] // values.shape[1], values.shape[1]), filler, values.dtype
    )
    spread[places] = values
    return spread


class BeamSearch:
    """The open hypotheses of one worker's sentences."""

    _edits: Edits
    _steps_until_edits: int
    """Steps for which `_edits` hold, as long as no rows change."""
    _steps_until_limit: int
    """Steps after which the first sentence is as long as it may be."""
    _has_bar: bool
    """Whether any sentence may end before that, because something of it is finished."""
    _usual: _Survivors | None
    """Of a ranking in which nothing says EOS, when no sentence ends; until rows change."""

    def __init__(self, *, eos_id: int, vocab_size: int) -> None:
        self._eos_id = eos_id
        self._vocab_size = vocab_size
        self.reset()

    def reset(self) -> None:
        """Forget all sentences."""
        self._sentences: list[_Sentence] = []
        self._columns = _columns([])
        self._log_probs: Float64Array = np.empty(0)
        self._pointers = BackPointers()
        self._lay_out()

    @property
    def num_candidates(self) -> int:
        """How many candidates a row the next step needs.

        Of the best K of a sentence that are not EOS, fewer than K and one EOS come before each in its own row: so K + 1
        of the largest beam. At beam 1 EOS ends the sentence, whatever comes after it.
        """
        largest = self._largest_beam
        return min(largest + (largest > 1), self._vocab_size)

    @property
    def num_entries(self) -> int:
        """Steps whose back-pointers are remembered."""
        return self._pointers.num_entries

    def add(self, sentences: list[tuple[DecodingOptions, int]]) -> None:
        """Append sentences, each with its own longest length in tokens with EOS, and one row."""
        step = self._pointers.step
        joined = [_Sentence(options, limit, step, []) for options, limit in sentences]
        self._sentences += joined
        self._columns.append(_columns(joined))
        self._log_probs = np.concatenate([self._log_probs, np.zeros(len(joined))])
        self._pointers.add_roots(len(joined))
        self._lay_out()

    def keep(self, kept: list[int]) -> RowMoves:
        """Forget all sentences but these, and tell how the rows move."""
        sentences = np.array(kept, np.int64)
        stays = np.zeros(len(self._sentences), bool)
        stays[sentences] = True
        rows = np.flatnonzero(stays[self._row_sentence])
        tokens = self._pointers.last_tokens()[rows]
        self._pointers.keep(rows)
        self._log_probs = self._log_probs[rows]
        self._keep_sentences(sentences)
        self._lay_out()
        return RowMoves(rows, tokens, sentences, self._columns.row_count)

    def edits(self) -> Edits:
        """What must not come next."""
        if not self._steps_until_edits:
            steps = self._columns.min_tokens - 1 - self._columns.length  # in which EOS is forbidden
            too_short = steps > 0
            self._edits = ban_eos(np.flatnonzero(too_short[self._row_sentence]), self._eos_id)
            self._steps_until_edits = int(steps[too_short].min(initial=_FAR))
        return self._edits

    def advance(self, candidates: Candidates) -> Advance:
        """Take one step of all sentences.

        Args:
            candidates: Of each row, in logical order.

        Returns:
            The rows of the next step, and the answers of sentences that ended.
        """
        columns = self._columns
        ranking = self._rank(candidates)
        columns.length += 1
        self._steps_until_edits = max(0, self._steps_until_edits - 1)
        self._steps_until_limit -= 1
        if ranking.finishes is not None:
            self._note_finished(ranking, ranking.finishes)
        elif self._steps_until_limit and not self._has_bar:
            return Advance(self._move(ranking, None), {})

        at_limit = columns.length >= columns.max_length
        ended = (columns.bar >= ranking.best_open / columns.divisor) | at_limit
        answers: dict[int, tuple[Hypothesis, ...]] = {}
        for place in ended.nonzero()[0].tolist():
            if at_limit[place]:
                self._finish_open(place, ranking)
            answers[place] = self._answer(self._sentences[place])
        return Advance(self._move(ranking, ended if answers else None), answers)

    def _rank(self, candidates: Candidates) -> _Ranking:
        """Sort the candidates of each sentence, and sort them out."""
        totals = self._log_probs[:, None] + candidates.log_probs  # (R, N) float64
        token_ids = candidates.token_ids
        num_rows, width = totals.shape
        shape = (len(self._sentences), self._most_rows * width)
        is_ragged = shape[0] * self._most_rows != num_rows
        if is_ragged:
            places = self._row_sentence * self._most_rows + self._row_offset
            totals = _spread(totals, places, shape, _NEVER)
            token_ids = _spread(token_ids, places, shape, 0)
        # Stable: of two equal candidates the one of the earlier row, then the earlier one of that row, comes first.
        order = (-totals.reshape(shape)).argsort(axis=1, kind="stable")  # (B, most rows x N)

        def pick(count: int) -> tuple[IntArray, IntArray, Float64Array]:
            best = order[:, :count]
            picked = best + self._sentence_column * shape[1]
            rows = self._first_row[:, None] + best // width if is_ragged else picked // width
            return rows, token_ids.take(picked), totals.take(picked)

        rows, ids, log_probs = pick(self._largest_beam)
        if not (ids == self._eos_id).any() and log_probs[:, -1].min(initial=0.0) > _NEVER:
            stays_open = self._ranks_below_k[:, : self._largest_beam]
            return _Ranking(rows, ids, log_probs, stays_open, log_probs[:, 0])
        return self._sort_out(*pick(2 * self._largest_beam))

    def _sort_out(self, rows: IntArray, token_ids: IntArray, log_probs: Float64Array) -> _Ranking:
        """Tell candidates that end from those that stay open."""
        count = token_ids.shape[1]
        is_eos = token_ids == self._eos_id
        valid = log_probs > _NEVER
        other = (valid > is_eos) & self._ranks_below_2k[:, :count]
        stays_open = other & (other.cumsum(axis=1) <= self._columns.beam_size[:, None])
        best_open = np.maximum.reduce(log_probs, axis=1, where=stays_open, initial=_NEVER)
        finishes = valid & is_eos & self._ranks_below_k[:, :count]
        return _Ranking(rows, token_ids, log_probs, stays_open, best_open, finishes)

    def _note_finished(self, ranking: _Ranking, finishes: BoolArray) -> None:
        """Keep the hypotheses that said EOS, and raise the bar of their sentences."""
        places, ranks = finishes.nonzero()
        for place, rank in zip(places.tolist(), ranks.tolist(), strict=True):
            self._finish(place, ranking, rank, last_token=None)
            options = self._sentences[place].options
            finished = self._sentences[place].finished
            if options.beam_size == 1:
                self._columns.bar[place], self._has_bar = np.inf, True
            elif len(finished) >= options.num_hypotheses:
                self._has_bar = True
                scores = sorted((item.score for item in finished), reverse=True)
                self._columns.bar[place] = scores[options.num_hypotheses - 1]

    def _finish_open(self, place: int, ranking: _Ranking) -> None:
        """Finish what is still open at the limit."""
        sentence = self._sentences[place]
        if sentence.options.beam_size == 1 and sentence.finished:
            return
        for rank in np.flatnonzero(ranking.stays_open[place]).tolist():
            self._finish(place, ranking, rank, last_token=int(ranking.token_ids[place, rank]))

    def _finish(self, place: int, ranking: _Ranking, rank: int, last_token: int | None) -> None:
        sentence = self._sentences[place]
        log_prob = float(ranking.log_probs[place, rank])
        length = int(self._columns.length[place])
        sentence.finished.append(
            _Finished(
                score=score(log_prob, length, sentence.options.length_penalty),
                log_prob=log_prob,
                step=self._pointers.step,
                row=int(ranking.rows[place, rank]),
                last_token=last_token,
            )
        )

    def _answer(self, sentence: _Sentence) -> tuple[Hypothesis, ...]:
        """The n best hypotheses; of two equal ones the earlier."""
        best = sorted(sentence.finished, key=lambda item: -item.score)
        return tuple(self._hypothesis(item) for item in best[: sentence.options.num_hypotheses])

    def _hypothesis(self, item: _Finished) -> Hypothesis:
        tokens = self._pointers.tokens(item.step, item.row)
        by_length = item.last_token is not None
        return Hypothesis(
            token_ids=(*tokens, item.last_token) if item.last_token is not None else tokens,
            log_prob=item.log_prob,
            score=item.score,
            finish_reason=FinishReason.LENGTH if by_length else FinishReason.STOP,
        )

    def _move(self, ranking: _Ranking, ended: BoolArray | None) -> RowMoves:
        """Make what stays open of the sentences that go on the rows of the next step; `ended` is None when all do."""
        if ended is None and ranking.finishes is None:
            if self._usual is None or self._usual.width != ranking.stays_open.shape[1]:
                self._usual = self._survivors(ranking.stays_open)
            survivors = self._usual
        else:
            stays_open = ranking.stays_open
            survivors = self._survivors(
                stays_open if ended is None else stays_open & ~ended[:, None]
            )
        chosen, kept = survivors.chosen, self._sentence_column[:, 0]
        parent_rows, token_ids = ranking.rows.take(chosen), ranking.token_ids.take(chosen)
        self._log_probs = ranking.log_probs.take(chosen)
        self._pointers.extend(parent_rows, token_ids)
        if not survivors.is_same:
            self._columns.row_count = survivors.row_count
        if ended is not None:
            kept = (~ended).nonzero()[0]
            self._keep_sentences(kept)
        if not survivors.is_same:  # A sentence that ended has no rows left.
            self._lay_out()
        return RowMoves(parent_rows, token_ids, kept, self._columns.row_count)

    def _survivors(self, survives: BoolArray) -> _Survivors:
        """Find the candidates that go on; (B, M)."""
        chosen, row_count = survives.ravel().nonzero()[0], survives.sum(axis=1)
        is_same = bool((row_count == self._columns.row_count).all())
        return _Survivors(survives.shape[1], chosen, row_count, is_same)

    def _keep_sentences(self, kept: IntArray) -> None:
        self._sentences = [self._sentences[place] for place in kept.tolist()]
        self._columns.take(kept)
        oldest = min((s.joined_step for s in self._sentences), default=self._pointers.step)
        self._pointers.trim(oldest)

    def _lay_out(self) -> None:
        """Where the rows of each sentence are, after sentences or rows changed."""
        counts = self._columns.row_count
        num_rows = int(counts.sum())
        ends = counts.cumsum()
        self._first_row = ends - counts  # (B,)
        sentences = np.arange(len(counts))
        self._sentence_column = sentences[:, None]  # (B, 1)
        self._row_sentence = sentences.repeat(counts)  # (R,)
        self._row_offset = np.arange(num_rows) - self._first_row[self._row_sentence]  # (R,)
        self._most_rows = int(counts.max(initial=0))
        beam_size = self._columns.beam_size
        self._largest_beam = int(beam_size.max(initial=0))
        ranks = np.arange(2 * self._largest_beam)
        self._ranks_below_k = ranks < beam_size[:, None]  # (B, 2K)
        self._ranks_below_2k = ranks < 2 * beam_size[:, None]
        columns = self._columns
        self._edits, self._steps_until_edits = NO_EDITS, 0
        self._steps_until_limit = int((columns.max_length - columns.length).min(initial=_FAR))
        self._has_bar = bool((columns.bar > _NEVER).any())
        self._usual = None
