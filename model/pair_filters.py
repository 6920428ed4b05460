"""Which pairs of a source and its machine translation are fit to learn from.

A student copies its teacher's accidents, so pairs that look like one are left out: each filter has a name under which
what it removed is counted. A pair is counted once, under the first filter that objects. Everything here works on
characters and words as they are written, for any pair of languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import log

_LENGTH_OFFSET = 10
"""Added to both lengths, so that "No." may become a longer word."""

_MIN_COPIED_WORDS = 3
"""Names and numbers of one or two words are rightly the same in both languages."""

_MAX_PHRASE_WORDS = 4
_RUN_OF_CHARACTERS = re.compile(r"(.{1,8}?)\1{7,}", re.DOTALL)
"""Something short, eight times in a row: also where no spaces stand between words."""

_DOUBT = 10
"""Trigrams of no language that every text is thought to have beside its own."""

_LETTERS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLimits:
    """What is still taken. Zero switches a filter off."""

    max_length_ratio: float = 3.0
    """Longer side / shorter side, in characters, ten added to both."""

    max_repeats: int = 3
    """How often a phrase of up to four words may stand in a row, unless it does so in the source too."""

    language_margin: float = 0.3
    """How much more a side may look like the other language, a letter: a logarithm. See `LanguageJudge`."""

    keep_copies: bool = False
    """Take translations that are the source again."""

    keep_duplicates: bool = False
    """Take pairs that came before."""

    def __post_init__(self) -> None:
        if self.max_length_ratio and self.max_length_ratio < 1:
            raise ValueError(
                f"`max_length_ratio` must be 0 or at least 1, but is {self.max_length_ratio}."
            )
        for name in ("max_length_ratio", "max_repeats", "language_margin"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0, but is {getattr(self, name)}.")


def find_fault(source: str, target: str, limits: FilterLimits) -> str | None:
    """Name the filter that objects to a pair by itself, or None.

    Args:
        source: The text.
        target: Its translation.
        limits: What is still taken.

    Returns:
        "empty", "copy", "repetition", "length_ratio" or None.
    """
    if not source.strip() or not target.strip():
        return "empty"
    if not limits.keep_copies and is_copy(source, target):
        return "copy"
    if limits.max_repeats and has_repetition(source, target, limits.max_repeats):
        return "repetition"
    if limits.max_length_ratio and length_ratio(source, target) > limits.max_length_ratio:
        return "length_ratio"
    return None


def is_copy(source: str, target: str) -> bool:
    """Tell whether a translation has the words of its source, whatever case and punctuation; names may."""
    words = _words(target)
    return len(words) >= _MIN_COPIED_WORDS and words == _words(source)


def has_repetition(source: str, target: str, max_repeats: int) -> bool:
    """Tell whether a translation says something again and again where its source does not."""
    # One more than in the source is no accident: "Ha! ha! ha!" becomes "Ah! ah! ah! ah!".
    if _longest_repeat(_words(target)) > max(max_repeats, _longest_repeat(_words(source)) + 1):
        return True
    return bool(_RUN_OF_CHARACTERS.search(target) and not _RUN_OF_CHARACTERS.search(source))


def length_ratio(source: str, target: str) -> float:
    """Compare the lengths of both sides; at least 1."""
    lengths = len(source.strip()) + _LENGTH_OFFSET, len(target.strip()) + _LENGTH_OFFSET
    return max(lengths) / min(lengths)


def _longest_repeat(words: list[str]) -> int:
    """Count how often a phrase stands in a row, at most: "no no no" has 3, "so it is so it is" has 2."""
    longest = 1
    for size in range(1, _MAX_PHRASE_WORDS + 1):
        matches = 0  # words in a row that equal the one `size` before
        for position in range(size, len(words)):
            matches = matches + 1 if words[position] == words[position - size] else 0
            longest = max(longest, 1 + matches // size)
    return longest


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"[^\W_]+", folded)


class LanguageJudge:
    """Tells two languages apart by three letters at a time, taught by the pairs themselves.

    What most sources look like is one language and what most translations look like is the other, so no list of
    languages is needed. It finds sentences that the teacher left untranslated and sources that are in the wrong
    language; a third language on both sides it does not find.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn from pairs, a few wrong ones among them do no harm."""
        counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        for pair in pairs:
            for side, text in zip(counts, pair, strict=True):
                side.update(_trigrams(text))
        known = set(counts[0]) | set(counts[1])
        totals = [side.total() + len(known) for side in counts]
        self._log_ratios = {
            gram: log((counts[1][gram] + 1) / totals[1]) - log((counts[0][gram] + 1) / totals[0])
            for gram in known
        }

    def lean(self, text: str) -> float:
        """Say how much more a text looks like the targets than like the sources: a mean logarithm, 0 for no letters.

        A short text proves little, so its mean is drawn towards zero.
        """
        grams = _trigrams(text)
        total = sum(self._log_ratios.get(gram, 0.0) for gram in grams)
        return total / (len(grams) + _DOUBT)

    def is_in_place(self, source: str, target: str, margin: float) -> bool:
        """Tell whether neither side looks like the other's language by more than `margin`."""
        return self.lean(source) <= margin and self.lean(target) >= -margin


def _trigrams(text: str) -> list[str]:
    padded = f" {' '.join(_LETTERS.findall(text.casefold()))} "
    return [padded[start : start + 3] for start in range(len(padded) - 2)]
