"""The model that ships: what it makes of a text, and that its files and its card belong together.

Translations hold for one class of CPU; where another rounds otherwise, these short sentences leave it little choice.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from export.bundle import load_bundle
from export.parity import verify
from model.tokenizer import Tokenizer
from service.app import create_translator
from service.request import TranslationRequest
from tests.golden_files import assert_matches_golden

PRETRAINED = Path(__file__).parents[2] / "model/pretrained"
BUNDLE = PRETRAINED / "en-pt"
CHECKPOINT = PRETRAINED / "en-pt.checkpoint"
MAX_BYTES = 40_000_000

TEXTS = (
    "The committee decided on Tuesday that the budget would not be approved.",
    "Good morning.",
    "Where is the nearest railway station?",
    "She has lived in Lisbon since 1998, and her brother moved there last year.",
    "Please close the door.\n\nThank you very much!",
)


def test_texts_become_the_golden_ids() -> None:
    bundle = load_bundle(BUNDLE)
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    lines = [f"{' '.join(map(str, ids))}\n" for ids in tokenizer.encode_source_batch(list(TEXTS))]
    assert_matches_golden("pretrained_ids.txt", "".join(lines))


def test_texts_become_the_golden_translations() -> None:
    async def translate() -> list[str]:
        async with create_translator() as translator:
            request = TranslationRequest(
                contents=TEXTS, source_language_code="en", target_language_code="pt"
            )
            answer = await translator.translate(request)
            return [translation.translated_text for translation in answer.translations]

    translations = asyncio.run(translate())
    assert_matches_golden("pretrained_translations.txt", "\n---\n".join(translations) + "\n")


def test_the_card_says_what_the_manifest_says() -> None:
    manifest = load_bundle(BUNDLE).manifest
    card = (BUNDLE / "README.md").read_text(encoding="utf-8")
    assert f"{manifest.name} {manifest.version}" in card
    assert manifest.license in card
    by_set: dict[str, dict[str, float]] = {}
    for score in manifest.scores:
        assert score.signature in card
        by_set.setdefault(score.test_set, {})[score.metric] = score.value
    assert by_set
    for test_set, values in by_set.items():
        rows = [line for line in card.splitlines() if line.startswith(f"| {test_set}")]
        assert f"{values['BLEU']:.2f} / {values['chrF']:.2f}" in rows[0]


def test_bundle_and_checkpoint_are_small_and_say_the_same_of_themselves() -> None:
    for directory in (BUNDLE, CHECKPOINT):
        assert sum(path.stat().st_size for path in directory.iterdir()) < MAX_BYTES
    for name in ("README.md", "LICENSE", "tokenizer.spm"):
        assert (BUNDLE / name).read_bytes() == (CHECKPOINT / name).read_bytes()


@pytest.mark.slow
def test_the_bundle_does_what_the_checkpoint_does() -> None:
    assert verify(BUNDLE, CHECKPOINT) == []
