"""Stage 4 of 10, part 1: who waits, and who is next.

Round-robin over requests: a document of a thousand sentences does not stand before one short call. Within a request the
oldest sentence comes first, or, beside company of a given length, the one of its oldest that is most like it. Pure data
structure: no clock, no limits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from service.request import Sequence

__all__ = ["WaitingQueue"]


class WaitingQueue:
    """Waiting sentences, grouped by request.

    With requests a = (a1, a2, a3) and b = (b1), taking what `peek` gives until nothing is left gives a1, b1, a2, a3:
    a request whose sentence is taken goes to the end.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[str, OrderedDict[int, Sequence]] = OrderedDict()
        self._request_of: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._request_of)

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self._request_of

    def __iter__(self) -> Iterator[Sequence]:
        for line in self._requests.values():
            yield from line.values()

    def add(self, sequence: Sequence) -> None:
        """Append a sentence to its request's line."""
        line = self._requests.setdefault(sequence.request_id, OrderedDict())
        line[sequence.sequence_id] = sequence
        self._request_of[sequence.sequence_id] = sequence.request_id

    def remove(self, sequence_id: int) -> Sequence:
        """Take a sentence out that will not run; the order of the requests stays."""
        request_id = self._request_of.pop(sequence_id)
        line = self._requests[request_id]
        sequence = line.pop(sequence_id)
        if not line:
            del self._requests[request_id]
        return sequence

    def take(self, sequence_id: int) -> Sequence:
        """Take a sentence out that will run; its request has had its turn and goes to the end."""
        request_id = self._request_of[sequence_id]
        sequence = self.remove(sequence_id)
        if request_id in self._requests:
            self._requests.move_to_end(request_id)
        return sequence

    def peek(self, like_length: int | None = None, window: int = 1) -> Sequence | None:
        """The sentence whose turn it is.

        Args:
            like_length: Source length of the company; None asks for the oldest sentence of the request.
            window: How many of the request's oldest sentences may be chosen from.
        """
        line = next(iter(self._requests.values()), None)
        if line is None:
            return None
        if like_length is None:
            return next(iter(line.values()))
        return min(
            islice(line.values(), window), key=lambda s: abs(len(s.source_ids) - like_length)
        )
