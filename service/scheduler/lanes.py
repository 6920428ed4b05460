"""Stage 4 of 10, part 3: two batches of one worker that take turns.

Short requests and documents do not run in the same step: beside sixty rows of a document each step of a call would
take six times as long as it takes alone. Each has a lane, and where both have something to do, time is divided.
"""

from __future__ import annotations

import enum

__all__ = ["Lane", "Turns"]

_DOCUMENT_SHARE = 0.5
"""Of a worker's time, as long as both lanes have something to do."""
_LEAST_SECONDS = 1e-6
"""What a step is taken to last at least, so that turns are taken by any clock."""


class Lane(enum.StrEnum):
    """A batch of a worker. A sentence stays where it began."""

    SHORT = "short"
    """Sentences of short requests."""
    DOCUMENTS = "documents"
    """All others."""


class Turns:
    """Whose step is next."""

    def __init__(self) -> None:
        self.forget()

    def charge(self, lane: Lane, seconds: float) -> None:
        """A step of a lane took so long."""
        self._seconds[lane] += max(seconds, _LEAST_SECONDS)

    def choose(self) -> Lane:
        """The lane that is next while both have something to do: short requests first, documents for their share."""
        documents = self._seconds[Lane.DOCUMENTS]
        is_due = documents < _DOCUMENT_SHARE * sum(self._seconds.values())
        return Lane.DOCUMENTS if is_due else Lane.SHORT

    def forget(self) -> None:
        """One lane has nothing to do: nobody owes anything when both have again."""
        self._seconds = {Lane.SHORT: 0.0, Lane.DOCUMENTS: 0.0}
