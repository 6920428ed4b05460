"""What `translate`, `evaluate` and `distill` need of whatever translates: a server, or the engine in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from commands.errors import EXIT_USAGE, CommandError

__all__ = ["Answer", "Backend", "Options", "Pair", "choose_model", "choose_pair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for. None or empty stands for "as the model's bundle says"."""

    source_language: str = ""
    target_language: str = ""
    model: str = ""
    beam_size: int | None = None
    length_penalty: float | None = None
    num_alternatives: int = 0
    return_scores: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one text. `error` is set when this text could not be translated."""

    text: str
    alternatives: tuple[str, ...] = ()
    score: float | None = None
    truncated: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded model and what it translates."""

    model: str
    source_language: str
    target_language: str
    version: str = ""
    precision: str = ""


class Backend(Protocol):
    """Translates many texts at once."""

    async def list_pairs(self) -> list[Pair]:
        """Name the loaded models."""

    async def translate(self, texts: Sequence[str], options: Options) -> list[Answer]:
        """Translate in order. Raises CommandError when the call as a whole cannot be answered."""


def choose_pair(pairs: Sequence[Pair], options: Options) -> Options:
    """Fill in the languages that the user left out, when only one loaded model fits what was said.

    Languages that were given stay as they are: the server falls back from `pt-BR` to `pt` by itself.
    """
    fitting = {
        (pair.source_language, pair.target_language)
        for pair in pairs
        if options.model in ("", pair.model)
        and _covers(options.source_language, pair.source_language)
        and _covers(options.target_language, pair.target_language)
    }
    if len(fitting) == 1:
        source, target = fitting.pop()
        return dataclasses.replace(
            options,
            source_language=options.source_language or source,
            target_language=options.target_language or target,
        )
    known = ", ".join(
        f"{pair.source_language} to {pair.target_language} ({pair.model})" for pair in pairs
    )
    if fitting:
        problem = "several models fit: name the source and the target language, or the model."
    else:
        problem = f"no loaded model fits{_describe(options)}."
    raise CommandError(f"{problem} Loaded: {known or 'none'}.", exit_code=EXIT_USAGE)


def choose_model(pairs: Sequence[Pair], options: Options) -> Pair:
    """Name the loaded model that answers a request: the one with the closest languages, of equals the first."""
    fitting = [
        pair
        for pair in pairs
        if options.model in ("", pair.model)
        and _covers(options.source_language, pair.source_language)
        and _covers(options.target_language, pair.target_language)
    ]
    if not fitting:
        raise CommandError(f"no loaded model fits{_describe(options)}.", exit_code=EXIT_USAGE)
    return max(fitting, key=lambda pair: (len(pair.source_language), len(pair.target_language)))


def _describe(options: Options) -> str:
    said = {
        "source": options.source_language,
        "target": options.target_language,
        "model": options.model,
    }
    return "".join(f", {name} {value!r}" for name, value in said.items() if value)


def _covers(wanted: str, offered: str) -> bool:
    return (
        not wanted
        or wanted.lower() == offered.lower()
        or wanted.lower().startswith(f"{offered.lower()}-")
    )
