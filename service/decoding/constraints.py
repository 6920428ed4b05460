"""Stage 7 of 10, part 2: what the next tokens may be, as edits of the distribution.

A constraint looks at the rows and gives (row, token) edits; the decoder graph applies them before it picks candidates,
so a banned token never takes a candidate's place. In most steps there are none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.rows import NO_EDITS, Edits

__all__ = ["ban_eos", "join_edits"]


def ban_eos(rows: NDArray[np.int64], eos_id: int) -> Edits:
    """Forbid the end of the sentence in these rows (`min_target_tokens`)."""
    if not len(rows):
        return NO_EDITS
    return Edits(
        rows=rows,
        token_ids=np.full(len(rows), eos_id, np.int64),
        scales=np.ones(len(rows), np.float32),
        biases=np.full(len(rows), -np.inf, np.float32),
    )


def join_edits(parts: Sequence[Edits]) -> Edits:
    """The edits of several constraints as one; they must not name the same (row, token) twice."""
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        return NO_EDITS
    if len(parts) == 1:
        return parts[0]
    return Edits(
        rows=np.concatenate([part.rows for part in parts]),
        token_ids=np.concatenate([part.token_ids for part in parts]),
        scales=np.concatenate([part.scales for part in parts]),
        biases=np.concatenate([part.biases for part in parts]),
    )
