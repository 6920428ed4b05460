"""One call to a running server."""

from __future__ import annotations

from typing import Any

import grpc

from benchmarks.corpus import load_texts
from protos.dragoman.v1 import translation_pb2, translation_pb2_grpc

__all__ = ["translate_once"]


def translate_once(address: str) -> list[str]:
    """Translate the built-in texts in one call with the first model that is there."""
    with grpc.insecure_channel(address) as channel:
        stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)
        model = stub.ListModels(translation_pb2.ListModelsRequest()).models[0]
        response = stub.TranslateText(
            translation_pb2.TranslateTextRequest(
                contents=load_texts(),
                source_language_code=model.source_language_code,
                target_language_code=model.target_language_code,
                model=model.name,
            )
        )
    return [translation.translated_text for translation in response.translations]
