"""A core and a vocabulary without a model: every word is a token, and a translation is its source in capitals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from service.errors import DragomanError, EngineStepError
from service.request import FinishReason, Hypothesis, Outcome, SequenceResult
from service.request import Sequence as SourceSequence
from service.translator import ServedModel
from tests.builders import make_manifest

EOS_ID = 0


class FakeTokenizer:
    """A word is a token; "bad" words may be marked by tests through their text."""

    def __init__(self) -> None:
        self.words = ["</s>"]

    def encode_source_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*map(self._id, text.split()), EOS_ID] for text in texts]

    def decode_target(self, token_ids: Sequence[int]) -> str:
        return " ".join(
            self.words[token_id] for token_id in token_ids if token_id != EOS_ID
        ).upper()

    def _id(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)


class FakeCore:
    """Answers each sequence with its own ids; the k-th hypothesis has its first k tokens left out.

    Attributes:
        refuse: Raised instead of taking anything.
        fail: Gives the error of a sequence, or None when it goes well.
        hold: Answers wait for this event.
        aborted: Sequences that were given up because the caller left.
    """

    def __init__(self) -> None:
        self.refuse: DragomanError | None = None
        self.fail: Callable[[SourceSequence], DragomanError | None] = lambda _: None
        self.hold: asyncio.Event | None = None
        self.taken: list[SourceSequence] = []
        self.aborted: list[int] = []

    async def stream(self, sequences: list[SourceSequence]) -> AsyncGenerator[SequenceResult, None]:
        if self.refuse is not None:
            raise self.refuse
        self.taken += sequences
        waiting = {sequence.sequence_id for sequence in sequences}
        try:
            if self.hold is not None:
                await self.hold.wait()
            for sequence in reversed(sequences):
                await asyncio.sleep(0)
                waiting.remove(sequence.sequence_id)
                yield self._answer(sequence)
        finally:
            self.aborted += sorted(waiting)

    def _answer(self, sequence: SourceSequence) -> SequenceResult:
        error = self.fail(sequence)
        if error is not None:
            outcome = Outcome.FAILED if isinstance(error, EngineStepError) else Outcome.EXPIRED
            return SequenceResult(sequence_id=sequence.sequence_id, outcome=outcome, error=error)
        return SequenceResult(
            sequence_id=sequence.sequence_id,
            outcome=Outcome.FINISHED,
            hypotheses=tuple(
                _hypothesis(sequence, rank) for rank in range(sequence.options.num_hypotheses)
            ),
        )


def make_served_model(core: FakeCore | None = None, **manifest: object) -> ServedModel:
    """A loaded model on a fake core."""
    return ServedModel(
        manifest=make_manifest(**manifest), tokenizer=FakeTokenizer(), core=core or FakeCore()
    )


def _hypothesis(sequence: SourceSequence, rank: int) -> Hypothesis:
    ids = sequence.source_ids[rank:-1]
    is_cut = len(ids) >= sequence.max_length
    return Hypothesis(
        token_ids=ids[: sequence.max_length],
        log_prob=-1.0 - rank,
        score=-0.5 - rank,
        finish_reason=FinishReason.LENGTH if is_cut else FinishReason.STOP,
    )
