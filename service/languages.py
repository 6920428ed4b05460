"""Language codes (BCP-47): the fallback of RFC 4647, section 3.4 ("lookup")."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["lookup_chain"]


def lookup_chain(code: str) -> Iterator[str]:
    """Give a code and its fallbacks, closest first, in lower case.

    Subtags are taken off the end; a single character that would then stand last goes too ("zh-hant-x-a" -> "zh-hant").
    """
    subtags = code.lower().split("-")
    while subtags:
        yield "-".join(subtags)
        subtags.pop()
        while len(subtags) > 1 and len(subtags[-1]) == 1:
            subtags.pop()
