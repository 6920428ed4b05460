"""Find training text that a test set holds too: a score on seen sentences says nothing.

Two texts are the same when their letters and digits are, whatever case, encoding of accents, spaces and punctuation.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

_WORD = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"[.!?…]+")

Words = tuple[str, ...]


class TestText:
    """An index of the lines that must not be trained on.

    A training line meets it when it is a test line, when one of its sentences is one, or when it shares many words in a
    row with one.
    """

    __test__ = False  # pytest takes classes of this name for tests

    def __init__(
        self, lines: Iterable[str], *, min_sentence_words: int = 5, max_shared_words: int = 8
    ) -> None:
        """Read the lines of all test sets, both sides.

        Args:
            lines: One text each.
            min_sentence_words: A sentence within a line counts from so many words on; shorter ones, such as "Good
                morning", are everybody's.
            max_shared_words: So many words in a row may be the same.
        """
        self._min_sentence_words = min_sentence_words
        self._phrase_length = max_shared_words + 1
        self._lines: set[str] = set()
        self._phrases: set[Words] = set()
        for line in lines:
            words = _words(line)
            self._lines.add("".join(words))
            self._phrases.update(self._windows(words))
        self._lines.discard("")

    def digest(self) -> str:
        """Give a name of what is looked for: the same for the same test sets in any order."""
        phrases = (" ".join(words) for words in self._phrases)
        text = "\n".join([*sorted(self._lines), str(self._min_sentence_words), *sorted(phrases)])
        return hashlib.sha256(text.encode()).hexdigest()

    def meets(self, line: str) -> bool:
        """Whether a line is, holds or shares too much with a test line."""
        words = _words(line)
        if "".join(words) in self._lines:
            return True
        if not self._phrases.isdisjoint(self._windows(words)):
            return True
        sentences = map(_words, _SENTENCE_END.split(line))
        return any(
            "".join(sentence) in self._lines
            for sentence in sentences
            if len(sentence) >= self._min_sentence_words
        )

    def _windows(self, words: list[str]) -> Iterable[Words]:
        if len(words) < self._phrase_length:
            return ()
        return zip(*(words[start:] for start in range(self._phrase_length)), strict=False)


def _words(line: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", line).lower())
