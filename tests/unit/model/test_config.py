import json

import pytest

from model.config import PRESETS, TransformerConfig


def test_presets_have_the_sizes_of_the_design():
    sizes = {
        name: (c.d_model, c.d_ff, c.encoder_layers, c.decoder_layers)
        for name in PRESETS
        for c in [TransformerConfig.from_preset(name, source_vocab_size=9, target_vocab_size=9)]
    }
    assert sizes == {
        "tiny": (256, 1536, 6, 2),
        "base": (512, 2048, 6, 6),
        "big": (1024, 4096, 6, 6),
    }


def test_a_field_wins_over_the_preset():
    config = TransformerConfig.from_preset(
        "tiny", source_vocab_size=9, target_vocab_size=9, decoder_layers=3
    )
    assert config.decoder_layers == 3
    assert config.head_size == 32


def test_dictionary_survives_json():
    config = TransformerConfig(source_vocab_size=7, target_vocab_size=9, tie_embeddings="decoder")
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_key_is_refused_with_the_nearest_field():
    with pytest.raises(ValueError, match=r"`d_modle` is not a field.*`d_model`"):
        TransformerConfig.from_dict({"source_vocab_size": 7, "target_vocab_size": 7, "d_modle": 8})


def test_missing_vocabulary_size_is_named():
    with pytest.raises(ValueError, match="needs `target_vocab_size`"):
        TransformerConfig.from_dict({"source_vocab_size": 7})


def test_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="`preset` must be one of"):
        TransformerConfig.from_preset("huge", source_vocab_size=7, target_vocab_size=7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_heads", 3),
        ("num_heads", 0),
        ("activation", "tanh"),
        ("norm_order", "middle"),
        ("positional_encoding", "rotary"),
        ("tie_embeddings", "some"),
        ("dropout", 1.0),
        ("norm_eps", 0.0),
        ("position_offset", -1),
        ("decoder_layers", 0),
        ("target_vocab_size", 8),
    ],
)
def test_impossible_value_is_refused_by_name(field, value):
    fields = {"source_vocab_size": 7, "target_vocab_size": 7, field: value}
    with pytest.raises(ValueError, match=f"`{field}` must be"):
        TransformerConfig.from_dict(fields)


def test_odd_width_is_refused_for_sinusoids_only():
    odd = {"source_vocab_size": 7, "target_vocab_size": 7, "d_model": 9, "num_heads": 3}
    with pytest.raises(ValueError, match="`d_model` must be even"):
        TransformerConfig.from_dict(odd)
    TransformerConfig.from_dict({**odd, "positional_encoding": "learned"})
