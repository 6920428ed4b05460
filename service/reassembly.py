"""Stage 9 of 10, its second half: put the translated segments back where their sources stood.

What lies between the segments is copied from the source, byte for byte. With n hypotheses for each segment the k-th
answer takes the k-th of each segment, or the last that a segment has:

    source     "Hi.  Bye!"           segments (0, 3) (5, 9)
    best       "Oi.  Tchau!"         from "Oi." / "Tchau!"
    2nd        "Olá.  Tchau!"        from "Olá." / nothing further
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service.request import FinishReason, Hypothesis, Segment, Translation
from service.segmenter import Span

__all__ = ["TranslatedSegment", "reassemble"]


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """A segment of the source with its answers, best first; at least one."""

    span: Span
    hypotheses: tuple[Hypothesis, ...]
    texts: tuple[str, ...]
    """One for each hypothesis."""


@dataclass(slots=True)
class _Answer:
    """One whole text, made of one hypothesis for each segment."""

    text: str
    target_spans: list[Span]
    hypotheses: list[Hypothesis]

    @property
    def score(self) -> float:
        """Mean of the segment scores, weighted by target tokens."""
        lengths = [num_target_tokens(hypothesis) for hypothesis in self.hypotheses]
        weighted = zip(lengths, self.hypotheses, strict=True)
        return math.fsum(length * each.score for length, each in weighted) / sum(lengths)


def reassemble(
    text: str,
    segments: Sequence[TranslatedSegment],
    *,
    num_alternatives: int = 0,
    with_scores: bool = False,
) -> Translation:
    """Make the answer to one text.

    Args:
        text: The source.
        segments: Its segments in order.
        num_alternatives: How many other answers are wanted; equal ones are told once.
        with_scores: Whether to tell scores.
    """
    if not segments:
        return Translation(translated_text=text)
    best = _assemble(text, segments, 0)
    others = _alternatives(text, segments, num_alternatives, best) if num_alternatives else ()
    return Translation(
        translated_text=best.text,
        alternatives=tuple(answer.text for answer in others),
        alternative_scores=tuple(answer.score for answer in others) if with_scores else (),
        score=best.score if with_scores else None,
        truncated=FinishReason.LENGTH in [each.finish_reason for each in best.hypotheses],
        segments=tuple(
            [
                _segment(segment.span, target, hypothesis)
                for segment, target, hypothesis in zip(
                    segments, best.target_spans, best.hypotheses, strict=True
                )
            ]
        ),
    )


def _alternatives(
    text: str, segments: Sequence[TranslatedSegment], count: int, best: _Answer
) -> Sequence[_Answer]:
    most = max(len(segment.texts) for segment in segments)
    answers = {best.text: best}
    for rank in range(1, min(most, count + 1)):
        answer = _assemble(text, segments, rank)
        answers.setdefault(answer.text, answer)
    return [*answers.values()][1:]


def num_target_tokens(hypothesis: Hypothesis) -> int:
    """Generated tokens, EOS included where the model gave one."""
    return len(hypothesis.token_ids) + (hypothesis.finish_reason is FinishReason.STOP)


def _assemble(text: str, segments: Sequence[TranslatedSegment], rank: int) -> _Answer:
    parts: list[str] = []
    target_spans: list[Span] = []
    hypotheses: list[Hypothesis] = []
    source_end = target_end = 0
    for segment in segments:
        choice = min(rank, len(segment.texts) - 1)
        gap, target = text[source_end : segment.span.start], segment.texts[choice]
        start = target_end + len(gap)
        source_end, target_end = segment.span.end, start + len(target)
        parts += [gap, target]
        target_spans.append(Span(start, target_end))
        hypotheses.append(segment.hypotheses[choice])
    parts.append(text[source_end:])
    return _Answer("".join(parts), target_spans, hypotheses)


def _segment(source: Span, target: Span, hypothesis: Hypothesis) -> Segment:
    return Segment(
        source_start=source.start,
        source_end=source.end,
        target_start=target.start,
        target_end=target.end,
        score=hypothesis.score,
        finish_reason=hypothesis.finish_reason,
    )
