"""The engine in this process, without a server: an implementation of `Backend`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from commands.backend import Answer, Options, Pair
from commands.errors import EXIT_USAGE, CommandError
from service.app import LocalTranslator, StartUpError, create_translator
from service.config import Config
from service.config_file import load_config
from service.errors import (
    DragomanError,
    InvalidRequestError,
    NotFoundError,
    NotImplementedInVersionError,
    OverloadedError,
)
from service.request import Translation, TranslationOptions, TranslationRequest

__all__ = ["LocalBackend"]

_USAGE_ERRORS = (InvalidRequestError, NotFoundError, NotImplementedInVersionError)


class LocalBackend:
    """Loads bundles when it is entered. The environment configures it as it configures the server."""

    def __init__(self, bundles: Sequence[Path]) -> None:
        self._bundles = tuple(map(str, bundles))
        self._stack = AsyncExitStack()
        self._translator: LocalTranslator | None = None

    async def __aenter__(self) -> LocalBackend:
        try:
            self._translator = await self._stack.enter_async_context(
                create_translator(self._load_config())
            )
        except StartUpError as error:
            raise CommandError(str(error), exit_code=EXIT_USAGE) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def list_pairs(self) -> list[Pair]:
        """Name the loaded models."""
        return [
            Pair(
                manifest.name,
                manifest.source_language,
                manifest.target_language,
                manifest.version,
                manifest.precision,
            )
            for manifest in self._loaded.manifests
        ]

    async def translate(self, texts: Sequence[str], options: Options) -> list[Answer]:
        """Translate in order."""
        request = TranslationRequest(
            contents=tuple(texts),
            source_language_code=options.source_language,
            target_language_code=options.target_language,
            model=options.model,
            options=TranslationOptions(
                beam_size=options.beam_size,
                length_penalty=options.length_penalty,
                num_alternatives=options.num_alternatives,
                return_scores=options.return_scores,
            ),
        )
        while True:
            try:
                answer = await self._loaded.translate(request)
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after_seconds)
            except _USAGE_ERRORS as error:
                raise CommandError(str(error), exit_code=EXIT_USAGE) from error
            except DragomanError as error:
                raise CommandError(str(error)) from error
            else:
                return [_to_answer(translation) for translation in answer.translations]

    @property
    def _loaded(self) -> LocalTranslator:
        if self._translator is None:
            raise RuntimeError("not entered")
        return self._translator

    def _load_config(self) -> Config:
        flags = {("models", "bundles"): self._bundles} if self._bundles else {}
        return load_config(None, os.environ, flags)


def _to_answer(translation: Translation) -> Answer:
    return Answer(
        text=translation.translated_text,
        alternatives=translation.alternatives,
        score=translation.score,
        truncated=translation.truncated,
        error=str(translation.error) if translation.error else "",
    )
