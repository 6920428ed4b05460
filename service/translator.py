"""Stages 3 and 9 of 10: texts to sequences, and hypotheses back to texts.

The only place where text and token ids meet. Work on text (segmenting, tokenizing, reassembling) runs in a small
thread pool, so that 5 MB of text do not hold up the event loop. A short text is worked on where it is: a sentence takes
0.03 ms, the way to another thread and back ten times as much.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from collections.abc import Sequence as Items
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from export.bundle import Manifest
from service.errors import DragomanError, EngineDeadError, SourceTooLongError
from service.reassembly import TranslatedSegment, reassemble
from service.request import Outcome, Sequence, SequenceResult, Translation, ValidRequest
from service.segmenter import Segmenter, Span, split_to_fit
from service.stats import NullObserver, Observer, TextStage, TextStats

__all__ = ["ServedModel", "SourceTokenizer", "Translator"]

Value = TypeVar("Value")

_sequence_ids = itertools.count(1)
_MAX_SHORT_CHARACTERS = 500
"""Of all texts of a request that is worked on in the event loop. The oddest text of this length takes a millisecond."""


class SourceTokenizer(Protocol):
    """What is needed of a model's vocabulary."""

    def encode_source_batch(self, texts: Items[str]) -> list[list[int]]:
        """Give the ids of many sources, EOS at the end of each."""

    def decode_target(self, token_ids: Items[int]) -> str:
        """Give the text of target ids."""


class SequenceStreamer(Protocol):
    """What is needed of a model's core."""

    def stream(self, sequences: list[Sequence]) -> AsyncGenerator[SequenceResult, None]:
        """Give one result for each sequence, in finishing order; closing it aborts what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A loaded model."""

    manifest: Manifest
    tokenizer: SourceTokenizer
    core: SequenceStreamer


@dataclass(slots=True)
class _Item:
    """One text on its way: its segments and a sequence for each, or why it is not translated."""

    text: str
    spans: list[Span] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    error: DragomanError | None = None


class Translator:
    """Translates valid requests with the loaded models."""

    def __init__(
        self,
        models: Items[ServedModel],
        *,
        num_text_threads: int = 2,
        max_text_segments: int = 5_000,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the loaded models; their names must differ. The observer is told of the work on texts."""
        self._observer = observer or NullObserver()
        self._clock = clock
        self._max_text_segments = max_text_segments
        self._models: Mapping[str, ServedModel] = {each.manifest.name: each for each in models}
        self._segmenters = {
            name: Segmenter(model.manifest.source_language) for name, model in self._models.items()
        }
        self._pool = ThreadPoolExecutor(num_text_threads, thread_name_prefix="text")

    async def translate(self, request: ValidRequest) -> list[Translation]:
        """Translate every text of a request, in order. Cancelling this frees the decoder rows before the next step.

        Raises:
            OverloadedError: The queue is full; nothing was taken.
            DrainingError: The server is shutting down; nothing was taken.
            DeadlineError: The deadline passed or cannot be kept.
            EngineDeadError: The engine is gone.
        """
        items = await self._work(request, lambda: self._prepare(request))
        results = await self._run(request.model, [s for item in items for s in item.sequences])
        return await self._work(request, lambda: self._finish(request, items, results))

    def manifest(self, model: str) -> Manifest:
        """Tell what a loaded model is."""
        return self._models[model].manifest

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self, request: ValidRequest, work: Callable[[], Value]) -> Value:
        """Do work on the texts of a request, in the pool unless they are short."""
        if sum(map(len, request.contents)) <= _MAX_SHORT_CHARACTERS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _run(self, model: str, sequences: list[Sequence]) -> dict[int, SequenceResult]:
        results: dict[int, SequenceResult] = {}
        if not sequences:
            return results
        async with aclosing(self._models[model].core.stream(sequences)) as stream:
            async for result in stream:
                if _fails_the_call(result):
                    raise _error_of(result)
                results[result.sequence_id] = result
        return results

    def _prepare(self, request: ValidRequest) -> list[_Item]:
        began = self._clock()
        items = [
            _Item(text, error=request.item_errors[index])
            if index in request.item_errors
            else self._prepare_text(text, request)
            for index, text in enumerate(request.contents)
        ]
        self._tell(TextStage.PREPARE, request, items, began)
        return items

    def _prepare_text(self, text: str, request: ValidRequest) -> _Item:
        model = self._models[request.model]
        spans = self._segmenters[request.model].segment(text)
        limit = model.manifest.limits.max_source_tokens
        encode = model.tokenizer.encode_source_batch
        encoded = encode([text[span.start : span.end] for span in spans])
        if max(map(len, encoded), default=0) > limit:
            spans = _split_long(text, spans, encoded, limit, encode)
            encoded = encode([text[span.start : span.end] for span in spans])
        if len(spans) > self._max_text_segments:
            return _Item(
                text,
                error=SourceTooLongError(
                    f"A text must have at most {self._max_text_segments} sentences, but this one has {len(spans)}."
                ),
            )
        return _Item(text, spans, [self._sequence(ids, request) for ids in encoded])

    def _sequence(self, source_ids: Items[int], request: ValidRequest) -> Sequence:
        limits = self._models[request.model].manifest.limits
        own_limit = int(limits.target_length_ratio * len(source_ids)) + limits.target_length_offset
        return Sequence(
            sequence_id=next(_sequence_ids),
            request_id=request.request_id,
            source_ids=tuple(source_ids),
            options=request.options,
            max_length=min(request.options.max_target_tokens, own_limit),
            deadline=request.deadline,
        )

    def _finish(
        self, request: ValidRequest, items: Items[_Item], results: Mapping[int, SequenceResult]
    ) -> list[Translation]:
        began = self._clock()
        translations = [
            Translation(translated_text="", error=item.error)
            if item.error is not None
            else self._finish_text(request, item, results)
            for item in items
        ]
        self._tell(TextStage.DETOKENIZE, request, items, began)
        return translations

    def _tell(
        self, stage: TextStage, request: ValidRequest, items: Items[_Item], began: float
    ) -> None:
        self._observer.on_text(
            TextStats(
                model=request.model,
                request_id=request.request_id,
                stage=stage,
                began=began,
                seconds=self._clock() - began,
                num_texts=len(items),
                num_segments=sum(len(item.spans) for item in items),
            )
        )

    def _finish_text(
        self, request: ValidRequest, item: _Item, results: Mapping[int, SequenceResult]
    ) -> Translation:
        tokenizer = self._models[request.model].tokenizer
        segments: list[TranslatedSegment] = []
        for span, sequence in zip(item.spans, item.sequences, strict=True):
            result = results[sequence.sequence_id]
            if result.outcome is not Outcome.FINISHED:
                return Translation(translated_text="", error=_error_of(result))
            texts = [tokenizer.decode_target(h.token_ids).strip() for h in result.hypotheses]
            segments.append(TranslatedSegment(span, result.hypotheses, tuple(texts)))
        return reassemble(
            item.text,
            segments,
            num_alternatives=request.options.num_hypotheses - 1,
            with_scores=request.return_scores,
        )


def _split_long(
    text: str,
    spans: Items[Span],
    encoded: Items[Items[int]],
    limit: int,
    encode: Callable[[Items[str]], list[list[int]]],
) -> list[Span]:
    """Split the segments that have too many tokens."""

    def count_tokens(texts: Items[str]) -> list[int]:
        return [len(ids) for ids in encode(texts)]

    parts = [
        [span] if len(ids) <= limit else split_to_fit(text, span, limit, count_tokens)
        for span, ids in zip(spans, encoded, strict=True)
    ]
    return list(itertools.chain.from_iterable(parts))


def _fails_the_call(result: SequenceResult) -> bool:
    """Whether the request as a whole is over: out of time, cancelled, or the engine is gone."""
    return result.outcome in (Outcome.EXPIRED, Outcome.CANCELLED) or isinstance(
        result.error, EngineDeadError
    )


def _error_of(result: SequenceResult) -> DragomanError:
    assert result.error is not None, "a result without hypotheses has an error"
    return result.error
