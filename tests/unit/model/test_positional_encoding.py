import math

import pytest
import torch

from model.config import TransformerConfig
from model.positional_encoding import (
    HalvedSinusoids,
    InterleavedSinusoids,
    LearnedPositions,
    create_positional_encoding,
)

ANY = torch.arange(50)


def test_even_dimensions_are_sines_and_odd_ones_cosines():
    encoded = InterleavedSinusoids(8)(ANY)
    for pair in range(4):
        frequency = 10000 ** (-2 * pair / 8)
        for position in (0, 1, 7, 49):
            assert encoded[position, 2 * pair] == pytest.approx(
                math.sin(position * frequency), abs=1e-5
            )
            assert encoded[position, 2 * pair + 1] == pytest.approx(
                math.cos(position * frequency), abs=1e-5
            )


@pytest.mark.parametrize("encoding", [InterleavedSinusoids(64), HalvedSinusoids(64)])
def test_every_number_is_bounded_by_one_far_past_any_training_length(encoding):
    encoded = encoding(torch.arange(100_000, 100_100))
    assert encoded.shape == (100, 64)
    assert encoded.abs().max() <= 1.0
    assert encoded.isfinite().all()


@pytest.mark.parametrize("step", [1, 5, 13])
def test_a_shift_is_one_linear_map_for_all_positions(step):
    encoding = InterleavedSinusoids(16)
    encoded = encoding(torch.arange(200)).double()
    shifted = encoding(torch.arange(200) + step).double()
    solution = torch.linalg.lstsq(encoded, shifted).solution
    torch.testing.assert_close(encoded @ solution, shifted, atol=1e-4, rtol=0.0)


def test_marian_divides_the_exponent_by_half_the_width_less_one():
    encoded = HalvedSinusoids(8)(ANY)
    for index in range(4):
        frequency = 10000 ** (-index / 3)
        assert encoded[7, index] == pytest.approx(math.sin(7 * frequency), abs=1e-5)
        assert encoded[7, 4 + index] == pytest.approx(math.cos(7 * frequency), abs=1e-5)


def test_hugging_face_divides_it_by_half_the_width():
    config = TransformerConfig(
        source_vocab_size=5,
        target_vocab_size=5,
        d_model=8,
        positional_encoding="sinusoidal_halves",
        position_exponent="half",
    )
    encoded = create_positional_encoding(config)(ANY)
    assert encoded[7, 3] == pytest.approx(math.sin(7 * 10000 ** (-3 / 4)), abs=1e-5)


def test_halves_are_the_interleaved_ones_in_another_order():
    interleaved = InterleavedSinusoids(8)(ANY)
    halved = HalvedSinusoids(8, divisor=4)(ANY)
    torch.testing.assert_close(halved[:, :4], interleaved[:, 0::2])
    torch.testing.assert_close(halved[:, 4:], interleaved[:, 1::2])


@pytest.mark.parametrize("encoding", [InterleavedSinusoids, HalvedSinusoids])
def test_offset_moves_every_position(encoding):
    torch.testing.assert_close(encoding(8, offset=2)(ANY), encoding(8)(ANY + 2))


def test_learned_positions_leave_the_rows_before_the_offset_alone():
    encoding = LearnedPositions(4, max_positions=3, offset=2)
    assert encoding.table.weight.shape == (5, 4)
    torch.testing.assert_close(encoding(torch.tensor([0, 2])), encoding.table.weight[[2, 4]])


def test_sinusoids_add_nothing_to_a_checkpoint():
    assert InterleavedSinusoids(8).state_dict() == {}
    assert HalvedSinusoids(8).state_dict() == {}


def test_width_of_two_does_not_divide_by_zero():
    assert HalvedSinusoids(2)(ANY).isfinite().all()
