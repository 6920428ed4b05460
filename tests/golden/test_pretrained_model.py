"""The models that ship: what they make of a text, and that their files and cards belong together.

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
MAX_BYTES = 40_000_000

TEXTS = {
    "en-pt": (
        "The committee decided on Tuesday that the budget would not be approved.",
        "Good morning.",
        "Where is the nearest railway station?",
        "She has lived in Lisbon since 1998, and her brother moved there last year.",
        "Please close the door.\n\nThank you very much!",
    ),
    "pt-en": (
        "A comissão decidiu na terça-feira que o orçamento não seria aprovado.",
        "Bom dia.",
        "Onde fica a estação de trem mais próxima?",
        "Ela mora em Lisboa desde 1998, e o irmão dela se mudou para lá no ano passado.",
        "Por favor, feche a porta.\n\nMuito obrigado!",
    ),
}

each_model = pytest.mark.parametrize("name", sorted(TEXTS))


def test_every_model_that_ships_is_looked_at() -> None:
    bundles = {path.parent.name for path in PRETRAINED.glob("*/manifest.json")}
    assert bundles == set(TEXTS)


@each_model
def test_texts_become_the_golden_ids(name: str) -> None:
    bundle = load_bundle(PRETRAINED / name)
    tokenizer = Tokenizer.load(bundle.source_tokenizer_path, bundle.target_tokenizer_path)
    ids = tokenizer.encode_source_batch(list(TEXTS[name]))
    lines = [f"{' '.join(map(str, each))}\n" for each in ids]
    assert_matches_golden(f"pretrained_ids.{name}.txt", "".join(lines))


@each_model
def test_texts_become_the_golden_translations(name: str) -> None:
    source, target = name.split("-")

    async def translate() -> list[str]:
        async with create_translator() as translator:
            request = TranslationRequest(
                contents=TEXTS[name], source_language_code=source, target_language_code=target
            )
            answer = await translator.translate(request)
            return [translation.translated_text for translation in answer.translations]

    translations = asyncio.run(translate())
    assert_matches_golden(
        f"pretrained_translations.{name}.txt", "\n---\n".join(translations) + "\n"
    )


@each_model
def test_the_card_says_what_the_manifest_says(name: str) -> None:
    bundle = load_bundle(PRETRAINED / name)
    manifest = bundle.manifest
    card = (bundle.directory / "README.md").read_text(encoding="utf-8")
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


@each_model
def test_bundle_and_checkpoint_are_small_and_say_the_same_of_themselves(name: str) -> None:
    bundle, checkpoint = PRETRAINED / name, PRETRAINED / f"{name}.checkpoint"
    for directory in (bundle, checkpoint):
        assert sum(path.stat().st_size for path in directory.iterdir()) < MAX_BYTES
    companions = ("tokenizer.spm", "shortlist.npz", "calibration.safetensors")
    for file in ("README.md", "LICENSE", *companions):
        assert (bundle / file).read_bytes() == (checkpoint / file).read_bytes()


@pytest.mark.slow
@each_model
def test_the_bundle_does_what_the_checkpoint_does(name: str) -> None:
    assert verify(PRETRAINED / name, PRETRAINED / f"{name}.checkpoint") == []
