"""Stage 3 of 10, its first half: cut a text into sentence-sized segments.

A segment is a span of the text. What lies outside all spans is put back as it was, byte for byte: whitespace, line
ends, control characters, and stretches without a single letter, in which there is nothing to translate. Sentence ends
are found by `sentencex` (Wikimedia); lines, tabs and control characters always separate segments.

    "  1. Hello.  Bye! "  ->  (2, 11) "1. Hello."  and  (13, 17) "Bye!"
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sentencex

__all__ = ["CountTokens", "Segmenter", "Span", "split_to_fit"]

CountTokens = Callable[[Sequence[str]], Sequence[int]]
"""How many source tokens each text has, EOS included."""

_LINES = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_CLAUSE_END = re.compile(r"(?<=[,;:)\]—–])\s+|(?<=[、，；：])")
_SPACE = re.compile(r"\s+")
_WINDOW_CHARACTERS = 10_000
_PLAIN_SPACES = {code: " " for code in range(0x80, 0x3001) if chr(code).isspace()}
"""sentencex 1.0.32 fails on a wide space before a full stop ("a\u00a0.")."""
_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text, in characters: `text[start:end]`."""

    start: int
    end: int


class Segmenter:
    """Finds the sentences of one language."""

    def __init__(self, language: str) -> None:
        """Take a BCP-47 code; a language without rules of its own gets the common ones."""
        self._language = language.partition("-")[0]

    def segment(self, text: str) -> list[Span]:
        """Find the segments of a text, in order; each begins and ends with no whitespace and holds a letter."""
        spans: list[Span] = []
        for line in _LINES.finditer(text):
            start = line.start()
            for piece in _join_letterless(self._cut(line[0])):
                end = start + len(piece)
                if _has_letter(piece):
                    spans.append(strip(text, start, end))
                start = end
        return spans

    def _cut(self, line: str) -> list[str]:
        """Cut a line into sentences, each with the whitespace after it.

        A long line is read window by window (unclosed quotes cost the library quadratic time); the last sentence of a
        window begins the next.
        """
        pieces: list[str] = []
        start = 0
        while len(line) - start > _WINDOW_CHARACTERS:
            window = line[start : start + _WINDOW_CHARACTERS]
            whole = self._cut_window(window)[:-1] or [window[: window.rfind(" ") + 1] or window]
            pieces += whole
            start += sum(map(len, whole))
        return pieces + self._cut_window(line[start:])

    def _cut_window(self, window: str) -> list[str]:
        plain = window if window.isascii() else window.translate(_PLAIN_SPACES)
        try:
            sentences = sentencex.segment(self._language, plain)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a Rust library; it is no `Exception`
                raise
            return [window]
        if "".join(sentences) != plain:
            return [window]
        if plain is window:
            return list(sentences)
        ends = [*itertools.accumulate(map(len, sentences), initial=0)]
        return [window[first:last] for first, last in itertools.pairwise(ends)]


def split_to_fit(text: str, span: Span, limit: int, count_tokens: CountTokens) -> list[Span]:
    """Split a segment that has too many tokens: between clauses, else between words, else anywhere.

    Args:
        text: The whole text.
        span: The segment.
        limit: Tokens that a segment may have, EOS included.
        count_tokens: Counts tokens.

    Returns:
        Spans in order. Only whitespace of the segment lies outside them, and each has at most `limit` tokens, unless
        a single character has more.
    """
    return list(_split(text, span, limit, count_tokens, (_CLAUSE_END, _SPACE)))


def strip(text: str, start: int, end: int) -> Span:
    """Take whitespace off both ends."""
    piece = text[start:end]
    stripped_start = start + len(piece) - len(piece.lstrip())
    return Span(stripped_start, max(stripped_start, start + len(piece.rstrip())))


def _split(
    text: str,
    span: Span,
    limit: int,
    count_tokens: CountTokens,
    boundaries: tuple[re.Pattern[str], ...],
) -> Iterator[Span]:
    if count_tokens([text[span.start : span.end]])[0] <= limit:
        yield span
        return
    if not boundaries:
        for half in _halves(text, span):
            yield from [half] if half == span else _split(text, half, limit, count_tokens, ())
        return
    atoms = list(_atoms(text, span, boundaries[0]))
    # EOS is not part of an atom: it comes once a segment.
    sizes = [count - 1 for count in count_tokens([text[a.start : a.end] for a in atoms])]
    for first, last in _pack(sizes, limit - 1):
        part = strip(text, atoms[first].start, atoms[last].end)
        rest = boundaries if last > first and part != span else boundaries[1:]
        yield from _split(text, part, limit, count_tokens, rest)


def _atoms(text: str, span: Span, boundary: re.Pattern[str]) -> Iterator[Span]:
    start = span.start
    for match in boundary.finditer(text, span.start, span.end):
        if start < match.end() < span.end:
            yield Span(start, match.end())
            start = match.end()
    yield Span(start, span.end)


def _pack(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Group neighbours so that no group is over the limit (unless one alone is) and all are of about the same size."""
    total = sum(sizes)
    goal = total / max(1, -(-total // max(1, limit)))
    first, size = 0, 0
    for index, each in enumerate(sizes):
        if index > first and (size + each > limit or size >= goal):
            yield first, index - 1
            first, size = index, 0
        size += each
    yield first, len(sizes) - 1


def _halves(text: str, span: Span) -> list[Span]:
    """Cut in the middle, and between a character and what modifies it only where there is no other place."""
    middle = (span.start + span.end) // 2
    nearest = sorted(range(span.start + 1, span.end), key=lambda cut: abs(cut - middle))
    if not nearest:
        return [span]
    cut = next((cut for cut in nearest if _may_cut(text, cut)), nearest[0])
    return [strip(text, span.start, cut), strip(text, cut, span.end)]


def _may_cut(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    return (
        _JOINER not in (before, after)
        and not unicodedata.category(after).startswith("M")
        and unicodedata.category(after) != "Sk"  # skin tones of emoji
    )


def _join_letterless(pieces: Sequence[str]) -> Sequence[str]:
    """Join a piece without letters to the sentence that it belongs to.

    A number ("2. ") opens the sentence after it; anything else (an emoji) closes the one before it.
    """
    if len(pieces) == 1:  # as nearly always
        return pieces
    joined: list[str] = []
    pending, pending_is_open = "", True  # open: it takes the next piece, whatever that is
    for piece in pieces:
        is_sentence = _has_letter(piece)
        opens = is_sentence or any(map(str.isdigit, piece))
        if opens and not pending_is_open:
            joined.append(pending)
            pending = ""
        pending += piece
        pending_is_open = not is_sentence and (opens or pending_is_open)
    joined.append(pending)
    return joined


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))
