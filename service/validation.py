"""Stage 2 of 10: refuse what cannot be served, with one clear message; give everything else a value.

Faults of the request (languages, model, options, limits on the call) are raised and fail the call. Faults of one text
(too long, not Unicode) are kept with the request as `item_errors` and fail that text only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from export.bundle import Manifest, is_language_code
from service.config import LimitsConfig
from service.errors import (
    DragomanError,
    InvalidRequestError,
    NotFoundError,
    NotImplementedInVersionError,
    SourceTooLongError,
    UnsupportedLanguageError,
)
from service.languages import lookup_chain
from service.request import DecodingOptions, TranslationOptions, TranslationRequest, ValidRequest

__all__ = ["MAX_BEAM_SIZE", "Validator"]

MAX_BEAM_SIZE = 16
_MAX_LENGTH_PENALTY = 10.0
_MAX_SHOWN_CHARACTERS = 40
_MAX_KNOWN_OPTIONS = 256
"""Clients ask with the same options again and again: so many are checked once."""


class Validator:
    """Knows the loaded models and the limits of a call."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        limits: LimitsConfig,
        *,
        max_beam_size: int = MAX_BEAM_SIZE,
    ) -> None:
        """Take the loaded models in the order of loading: the first of a pair is its default."""
        self._manifests = tuple(manifests)
        self._by_pair = {
            (each.source_language, each.target_language): each for each in reversed(manifests)
        }
        self._by_name = {each.name: each for each in manifests}
        self._limits = limits
        self._max_beam_size = min(MAX_BEAM_SIZE, max_beam_size)
        self._known_options = functools.lru_cache(_MAX_KNOWN_OPTIONS)(self._check_options)

    def validate(self, request: TranslationRequest) -> ValidRequest:
        """Check a request.

        Raises:
            InvalidRequestError: A field is wrong; the message says which and what it must be.
            NotFoundError: No loaded model has that name or translates that pair.
            NotImplementedInVersionError: It asks for what this version does not build.
        """
        _check_mime_type(request.mime_type)
        manifest = self._route(request)
        options = self._known_options(request.options, manifest.name)
        return ValidRequest(
            contents=request.contents,
            model=manifest.name,
            options=options,
            return_scores=request.options.return_scores,
            request_id=request.request_id,
            deadline=request.deadline,
            item_errors=self._check_contents(request.contents),
        )

    def find(self, source_language: str, target_language: str) -> list[Manifest]:
        """List the models that answer these languages; an empty code stands for any."""
        return [
            manifest
            for manifest in self._manifests
            if _answers(manifest.source_language, source_language)
            and _answers(manifest.target_language, target_language)
        ]

    def _route(self, request: TranslationRequest) -> Manifest:
        if request.model:
            return self._route_by_name(request)
        exact = self._by_pair.get((request.source_language_code, request.target_language_code))
        if exact is not None:  # as nearly always
            return exact
        for name in ("source_language_code", "target_language_code"):
            self._check_language(name, getattr(request, name))
        for source in lookup_chain(request.source_language_code):
            for target in lookup_chain(request.target_language_code):
                for manifest in self._manifests:
                    if _pair(manifest) == (source, target):
                        return manifest
        raise NotFoundError(
            f"No loaded model translates {request.source_language_code} to "
            f"{request.target_language_code}, but {self._describe_pairs()}."
        )

    def _route_by_name(self, request: TranslationRequest) -> Manifest:
        for manifest in self._manifests:
            if manifest.name == request.model:
                break
        else:
            known = ", ".join(repr(manifest.name) for manifest in self._manifests)
            raise NotFoundError(f"`model` must be one of {known}, but is {_shown(request.model)}.")
        source, target = request.source_language_code, request.target_language_code
        for name, code in (("source_language_code", source), ("target_language_code", target)):
            if code:  # the model's own, when empty
                self._check_language(name, code)
        if _answers(manifest.source_language, source) and _answers(
            manifest.target_language, target
        ):
            return manifest
        raise NotFoundError(
            f"Model {manifest.name!r} translates {manifest.source_language} to "
            f"{manifest.target_language}, not {source or 'any'} to {target or 'any'}."
        )

    def _check_language(self, name: str, code: str) -> None:
        known = sorted({code for each in self._manifests for code in _languages(each)})
        is_known = is_language_code(code) and any(_answers(each, code) for each in known)
        _require(
            is_known, name, f"one of {', '.join(known)}", code, error_type=UnsupportedLanguageError
        )

    def _describe_pairs(self) -> str:
        pairs = dict.fromkeys(
            f"{m.source_language} to {m.target_language}" for m in self._manifests
        )
        return ", ".join(pairs)

    def _check_options(self, options: TranslationOptions, model: str) -> DecodingOptions:
        if options.unimplemented:
            names = ", ".join(f"`{name}`" for name in options.unimplemented)
            raise NotImplementedInVersionError(f"This version does not build {names} yet.")
        defaults, limits = self._by_name[model].decoding, self._by_name[model].limits
        num_hypotheses = options.num_alternatives + 1
        beam_size = options.beam_size
        if beam_size is None:
            beam_size = min(max(defaults.beam_size, num_hypotheses), self._max_beam_size)
        _require_between(beam_size, "beam_size", 1, self._max_beam_size)
        _require_between(options.num_alternatives, "num_alternatives", 0, beam_size - 1)
        length_penalty = _or_default(options.length_penalty, defaults.length_penalty)
        _require_between(length_penalty, "length_penalty", 0, _MAX_LENGTH_PENALTY)
        max_target_tokens = int(_or_default(options.max_target_tokens, limits.max_target_tokens))
        _require_between(max_target_tokens, "max_target_tokens", 1, limits.max_target_tokens)
        min_target_tokens = int(_or_default(options.min_target_tokens, 0))
        _require_between(min_target_tokens, "min_target_tokens", 0, max_target_tokens)
        return DecodingOptions(
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_target_tokens=max_target_tokens,
            min_target_tokens=min_target_tokens,
            num_hypotheses=num_hypotheses,
        )

    def _check_contents(self, contents: Sequence[str]) -> Mapping[int, DragomanError]:
        limits = self._limits
        if len(contents) > limits.max_contents:
            raise InvalidRequestError(
                f"`contents` must have at most {limits.max_contents} texts, but has {len(contents)}."
            )
        errors: dict[int, DragomanError] = {}
        total = 0
        for index, text in enumerate(contents):
            error = _text_fault(text, limits.max_text_characters)
            if error is None:
                total += len(text)
            else:
                errors[index] = error
        if total > limits.max_request_characters:
            raise InvalidRequestError(
                f"`contents` must have at most {limits.max_request_characters} characters together, "
                f"but has {total}."
            )
        return errors


def _text_fault(text: str, max_characters: int) -> DragomanError | None:
    if len(text) > max_characters:
        return SourceTooLongError(
            f"A text must have at most {max_characters} characters, but this one has {len(text)}."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return InvalidRequestError(
            f"A text must be valid Unicode, but this one has a lone surrogate at character {error.start}."
        )
    return None


def _check_mime_type(mime_type: str) -> None:
    if not mime_type:
        return
    kind = mime_type.partition(";")[0].strip().lower()
    if kind == "text/html":
        raise NotImplementedInVersionError("This version does not build `mime_type` text/html yet.")
    _require(kind in ("", "text/plain"), "mime_type", '"text/plain" or "text/html"', mime_type)


def _require_between(value: float, name: str, low: float, high: float) -> None:
    _require(low <= value <= high, name, f"in [{low:g}, {high:g}]", value)


def _require(
    condition: bool,
    name: str,
    rule: str,
    value: object,
    *,
    error_type: type[InvalidRequestError] = InvalidRequestError,
) -> None:
    if not condition:
        raise error_type(f"`{name}` must be {rule}, but is {_shown(value)}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…"


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def _answers(language: str, asked: str) -> bool:
    """Whether a model's language answers a code, by fallback; an empty code is answered by all."""
    return not asked or language.lower() in lookup_chain(asked)


def _pair(manifest: Manifest) -> tuple[str, str]:
    return manifest.source_language.lower(), manifest.target_language.lower()


def _languages(manifest: Manifest) -> tuple[str, str]:
    return manifest.source_language, manifest.target_language
