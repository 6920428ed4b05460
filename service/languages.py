"""Language codes: BCP-47 (RFC 5646) and the fallback of RFC 4647, section 3.4 ("lookup")."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["is_language_code", "lookup_chain"]

_LANGUAGE_CODE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)
_MAX_LENGTH = 64


def is_language_code(code: str) -> bool:
    """Tell whether this has the form of a BCP-47 code."""
    return len(code) <= _MAX_LENGTH and _LANGUAGE_CODE.fullmatch(code) is not None


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
