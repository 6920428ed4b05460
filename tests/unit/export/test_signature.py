from __future__ import annotations

from export import signature
from export.signature import decoder_inputs, decoder_outputs, encoder_outputs, padded_vocab_size


def test_public_names_are_sorted_and_there() -> None:
    names = signature.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(signature, name) for name in signature.__all__)


def test_the_vocabulary_is_padded_to_whole_blocks() -> None:
    assert [padded_vocab_size(n) for n in (1, 64, 65, 32000)] == [64, 64, 128, 32000]


def test_what_the_encoder_gives_is_what_the_decoder_takes() -> None:
    taken = {spec.name: spec for spec in decoder_inputs(3, 4, 8)}
    for spec in encoder_outputs(3, 4, 8):
        other = taken[spec.name.replace("present", "past_key_values")]
        assert (other.dtype, other.axes) == (spec.dtype, spec.axes)


def test_every_past_has_a_present_of_its_shape() -> None:
    given = {spec.name: spec for spec in decoder_outputs(3, 4, 8, 100)}
    pasts = [spec for spec in decoder_inputs(3, 4, 8) if ".decoder." in spec.name]
    assert len(pasts) == 6
    for spec in pasts:
        other = given[spec.name.replace("past_key_values", "present")]
        assert (other.dtype, other.axes) == (spec.dtype, spec.axes)
