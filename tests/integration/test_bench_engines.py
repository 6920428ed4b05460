"""The engines that `dragoman bench` compares do the same work: as many tokens as asked for.

That their ids are the same, too, is measured by the bench itself (`benchmarks/identity.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.ctranslate2_engine import CTranslate2Engine, thread_choices
from benchmarks.ctranslate2_model import save_ctranslate2_model, vocabulary
from benchmarks.dragoman_engine import DragomanEngine
from benchmarks.engine import Ids, Search, TranslationEngine
from export.bundle import Bundle
from model.checkpoint import load_model
from service.engine.onnx_engine import load_onnx_engine
from tests.tiny_models import SENTENCES, make_tokenizer

if TYPE_CHECKING:
    from export.bundle import Precision

NUM_TOKENS = 7


@pytest.fixture(scope="module")
def engines(
    random_bundle: Callable[[Precision], Bundle], tmp_path_factory: pytest.TempPathFactory
) -> list[TranslationEngine]:
    bundle = random_bundle("float32")
    special = bundle.manifest.special_tokens
    model = load_model(bundle.directory.parent / "checkpoint").eval()
    directory: Path = tmp_path_factory.mktemp("ctranslate2") / "model"
    save_ctranslate2_model(model, directory, special.unk_id)
    tokens = vocabulary(
        model.config.target_vocab_size,
        eos_id=special.eos_id,
        bos_id=special.bos_id,
        unk_id=special.unk_id,
    )
    return [
        DragomanEngine("Dragoman", load_onnx_engine(bundle), 2),
        *(CTranslate2Engine(directory, tokens, "float32", choice) for choice in thread_choices(2)),
    ]


@pytest.fixture(scope="module")
def sources() -> list[Ids]:
    return [tuple(source) for source in make_tokenizer().encode_source_batch(list(SENTENCES))]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_forced_length_is_kept_by_every_engine(
    engines: list[TranslationEngine], sources: list[Ids], beam_size: int
) -> None:
    search = Search(beam_size=beam_size, num_tokens=NUM_TOKENS)

    for engine in engines:
        found = engine.translate(sources, search)
        assert [len(target) for target in found] == [NUM_TOKENS] * len(sources), engine.label
