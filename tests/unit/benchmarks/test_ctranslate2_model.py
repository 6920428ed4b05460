"""A converted model says in CTranslate2 what ours says in torch."""

import random
from pathlib import Path

import ctranslate2
import pytest

from benchmarks.ctranslate2_model import save_ctranslate2_model, vocabulary
from model.generate import SearchOptions, greedy_batch
from tests.tiny_models import make_model

VOCAB_SIZE = 40
UNK_ID = 1
MARIAN = {
    "start_from_zero_embedding": True,
    "positional_encoding": "sinusoidal_halves",
    "output_bias": True,
    "norm_eps": 1e-9,
    "eos_id": 0,
    "bos_id": 0,
}


@pytest.mark.parametrize(
    "fields",
    [
        MARIAN,
        {"positional_encoding": "learned", "position_offset": 2, "activation": "silu"},
        {"norm_order": "pre", "final_norm": True, "activation": "gelu"},
        {"embedding_norm": True, "tie_embeddings": "none", "scale_embeddings": False},
    ],
    ids=["marian", "learned-positions", "pre-norm", "embedding-norm"],
)
def test_greedy_answers_are_those_of_torch(tmp_path: Path, fields: dict) -> None:
    sizes = {"source_vocab_size": VOCAB_SIZE, "target_vocab_size": VOCAB_SIZE}
    ids = {"pad_id": 3, "bos_id": 3, "eos_id": 2}
    model = make_model(
        spread=1.0, seed=3, encoder_layers=2, decoder_layers=2, **sizes, **{**ids, **fields}
    )
    chance = random.Random(1)
    eos_id = model.config.eos_id
    sources = [
        [*(chance.randrange(4, VOCAB_SIZE) for _ in range(chance.randint(1, 12))), eos_id]
        for _ in range(16)
    ]
    options = SearchOptions(max_target_tokens=20, suppressed_ids=(UNK_ID,))
    expected = greedy_batch(model, sources, options)

    save_ctranslate2_model(model, tmp_path / "model", UNK_ID)
    names = vocabulary(VOCAB_SIZE, eos_id=eos_id, bos_id=ids["bos_id"], unk_id=UNK_ID)
    names[eos_id] = "</s>"
    translator = ctranslate2.Translator(
        str(tmp_path / "model"), compute_type="float32", intra_threads=1
    )
    found = [
        translator.translate_batch(
            [[names[token] for token in source]],
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=options.max_length(len(source)),
            disable_unk=True,
        )[0].hypotheses[0]
        for source in sources
    ]

    assert found == [[names[token] for token in answer.token_ids] for answer in expected]
    assert len({len(answer) for answer in found}) > 1  # otherwise lengths say nothing
