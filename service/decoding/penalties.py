"""Stage 7 of 10, part 1: what a hypothesis is worth.

score = log_prob / L^alpha, L generated tokens with EOS. Alpha 0 compares sums, 1 compares means. Higher is better.
"""

from __future__ import annotations

import math

__all__ = ["length_divisor", "score"]


def length_divisor(length: int, length_penalty: float) -> float:
    """L^alpha. Grows with the length, so a longer hypothesis may cost more."""
    return math.pow(length, length_penalty)


def score(log_prob: float, length: int, length_penalty: float) -> float:
    """The score of a finished hypothesis."""
    return log_prob / length_divisor(length, length_penalty)
