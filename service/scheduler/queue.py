"""Stage 4 of 10, part 1: who waits, and who is next.

Requests take turns. Those that are short, or of which nothing runs, do so before long ones ("documents") that have a
part of theirs running: a document of a thousand sentences does not stand before one short call, and a flood of short
calls leaves every document one sentence at least. Within a request the oldest sentence comes first, or, beside company
of a given length, the one of its oldest that is most like it. Pure data structure: no clock, no limits.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import chain, islice

from service.request import Sequence

__all__ = ["SHORT_SENTENCES", "WaitingQueue"]

_Line = OrderedDict[int, Sequence]
"""The waiting sentences of one request."""

SHORT_SENTENCES = 4
"""A request is short while no more sentences of it wait or run here."""


class WaitingQueue:
    """Waiting sentences, grouped by request; of those that run it knows how many each request has.

    With requests a = (a1, a2, a3) and b = (b1), taking what `peek` gives until nothing is left gives a1, b1, a2, a3:
    a request whose sentence is taken goes to the end of its group. With a document d = (d1, ..., d9) before them it
    gives d1, a1, b1, a2, a3, d2, ..., d9.
    """

    def __init__(self) -> None:
        self._preferred: OrderedDict[str, _Line] = OrderedDict()
        """Lines of requests that are short or of which nothing runs."""
        self._others: OrderedDict[str, _Line] = OrderedDict()
        self._new_documents: OrderedDict[str, None] = OrderedDict()
        """Those of the preferred that are not short, in their order."""
        self._request_of: dict[int, str] = {}
        self._num_running: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        """Sentences of each request, waiting or running."""
        self._num_short = 0

    def __len__(self) -> int:
        return len(self._request_of)

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self._request_of

    def __iter__(self) -> Iterator[Sequence]:
        for line in chain(self._preferred.values(), self._others.values()):
            yield from line.values()

    @property
    def has_short_requests(self) -> bool:
        """Whether a request is short, waiting or running."""
        return self._num_short > 0

    def is_short(self, request_id: str) -> bool:
        """Whether a request has few sentences here, waiting and running together."""
        return 0 < self._sizes[request_id] <= SHORT_SENTENCES

    def is_preferred(self, request_id: str) -> bool:
        """Whether a request is short, or nothing of it runs."""
        return self.is_short(request_id) or not self._num_running[request_id]

    def add(self, sequence: Sequence) -> None:
        """Append a sentence to its request's line."""
        request_id = sequence.request_id
        line = self._line(request_id) or OrderedDict()
        line[sequence.sequence_id] = sequence
        self._request_of[sequence.sequence_id] = request_id
        self._resize(request_id, 1)
        self._place(request_id, line)

    def remove(self, sequence_id: int) -> Sequence:
        """Take a sentence out that will not run; the order of the requests stays."""
        sequence = self._pop(sequence_id)
        self._resize(sequence.request_id, -1)
        self._place(sequence.request_id, self._line(sequence.request_id))
        return sequence

    def take(self, sequence_id: int) -> Sequence:
        """Take a sentence out that will run; its request has had its turn and goes to the end."""
        sequence = self._pop(sequence_id)
        self._num_running[sequence.request_id] += 1
        line = self._line(sequence.request_id)
        self._drop(sequence.request_id)
        self._place(sequence.request_id, line)
        return sequence

    def end(self, request_id: str) -> None:
        """A sentence that was taken runs no more."""
        self._num_running[request_id] -= 1
        if not self._num_running[request_id]:
            del self._num_running[request_id]
        self._resize(request_id, -1)
        self._place(request_id, self._line(request_id))

    def peek(self, like_length: int | None = None, window: int = 1) -> Sequence | None:
        """The sentence whose turn it is.

        Args:
            like_length: Source length of the company; None asks for the oldest sentence of the request.
            window: How many of the request's oldest sentences may be chosen from.
        """
        line = next(chain(self._preferred.values(), self._others.values()), None)
        return None if line is None else self._choose(line, like_length, window)

    def peek_document(self, like_length: int | None = None, window: int = 1) -> Sequence | None:
        """As `peek`, of requests that are not short."""
        new = next(iter(self._new_documents), None)
        line = next(iter(self._others.values()), None) if new is None else self._preferred[new]
        return None if line is None else self._choose(line, like_length, window)

    def count_next(self, most: int) -> int:
        """How many sentences are next, of requests that are preferred where there are any; no more than `most`."""
        lines = self._preferred or self._others
        return min(most, sum(map(len, islice(lines.values(), most))))

    def count_documents(self, most: int) -> int:
        """How many sentences wait of documents that have a part of theirs running; no more than `most`."""
        return min(most, sum(map(len, islice(self._others.values(), most))))

    @staticmethod
    def _choose(line: _Line, like_length: int | None, window: int) -> Sequence:
        if like_length is None:
            return next(iter(line.values()))
        return min(
            islice(line.values(), window), key=lambda s: abs(len(s.source_ids) - like_length)
        )

    def _pop(self, sequence_id: int) -> Sequence:
        request_id = self._request_of.pop(sequence_id)
        line = self._line(request_id)
        assert line is not None, "a sentence that waits is in the line of its request"
        return line.pop(sequence_id)

    def _line(self, request_id: str) -> _Line | None:
        return self._preferred.get(request_id) or self._others.get(request_id)

    def _place(self, request_id: str, line: _Line | None) -> None:
        """Put a line where it belongs: at the end, if it is not there yet."""
        group = self._preferred if self.is_preferred(request_id) else self._others
        if line and request_id not in group:
            self._drop(request_id)
            group[request_id] = line
        elif not line:
            self._drop(request_id)
        is_new_document = group is self._preferred and not self.is_short(request_id)
        if line and is_new_document:
            self._new_documents.setdefault(request_id)
        else:
            self._new_documents.pop(request_id, None)

    def _drop(self, request_id: str) -> None:
        self._preferred.pop(request_id, None)
        self._others.pop(request_id, None)
        self._new_documents.pop(request_id, None)

    def _resize(self, request_id: str, change: int) -> None:
        self._num_short -= self.is_short(request_id)
        self._sizes[request_id] += change
        if not self._sizes[request_id]:
            del self._sizes[request_id]
        self._num_short += self.is_short(request_id)
