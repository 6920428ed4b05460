"""When calls come in and what they carry: the same for every server that is compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BULK_SHARE", "BULK_TEXTS", "Arrival", "draw_mix", "poisson_arrivals"]

BULK_SHARE = 0.1
"""One call in ten is a document."""
BULK_TEXTS = 32
"""Its texts; the other calls carry one."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One call."""

    at: float
    """Seconds after the beginning."""
    texts: tuple[str, ...]


def poisson_arrivals(rate: float, seconds: float, texts: Sequence[str], seed: int) -> list[Arrival]:
    """Draw a Poisson process, given that its number of calls is the one expected.

    Short runs of a free process differ in how much they ask for, which is no news of any server. So the number of
    calls is `rate * seconds`, their times are uniform and sorted, which is what a Poisson process is when its number is
    known, and exactly one call in ten is a document.

    Args:
        rate: Calls a second.
        seconds: How long calls come in.
        texts: What to choose texts from.
        seed: The same seed draws the same calls.
    """
    chance = random.Random(seed)
    count = round(rate * seconds)
    times = sorted(chance.uniform(0, seconds) for _ in range(count))
    return [
        Arrival(at, carried)
        for at, carried in zip(times, draw_mix(count, texts, seed), strict=True)
    ]


def draw_mix(count: int, texts: Sequence[str], seed: int) -> list[tuple[str, ...]]:
    """Draw what so many calls carry: a text, or in exactly one call of ten a document."""
    chance = random.Random(seed)
    documents = set(chance.sample(range(count), round(BULK_SHARE * count)))
    return [
        tuple(chance.choices(texts, k=BULK_TEXTS if number in documents else 1))
        for number in range(count)
    ]
