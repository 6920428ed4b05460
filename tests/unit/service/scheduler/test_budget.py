from __future__ import annotations

from typing import Any

from service.config import SchedulerConfig
from service.scheduler.budget import BatchBudget
from tests.builders import make_sequence


def cache_bytes(rows: int, target_length: int, sentences: int, source_length: int) -> int:
    return rows * target_length + 100 * sentences * source_length


def create(**limits: Any) -> BatchBudget:
    return BatchBudget(SchedulerConfig(**limits), cache_bytes)


def test_rows_are_reserved_for_the_whole_beam() -> None:
    budget = create(max_batch_rows=10)
    budget.reserve(make_sequence(beam_size=8))
    assert budget.rows == 8
    assert budget.fits(make_sequence(beam_size=2))
    assert not budget.fits(make_sequence(beam_size=3))


def test_padded_tokens_are_rows_times_the_longest_source() -> None:
    budget = create(max_batch_tokens=100)
    budget.reserve(make_sequence((1,) * 5, beam_size=4))
    assert budget.padded_tokens == 20
    assert budget.fits(make_sequence((1,) * 12, beam_size=4))
    assert not budget.fits(make_sequence((1,) * 13, beam_size=4))


def test_cache_is_reserved_up_to_each_sentences_own_limit() -> None:
    budget = create(max_cache_bytes=1000)
    sequence = make_sequence((1,), beam_size=4, max_length=50)
    budget.reserve(sequence)
    assert budget.reserved_bytes == 4 * 50 + 100
    assert budget.fits(make_sequence((1,), beam_size=4, max_length=100))
    assert not budget.fits(make_sequence((1,), beam_size=4, max_length=101))


def test_what_leaves_gives_everything_back() -> None:
    budget = create()
    sequences = [make_sequence((1,) * n, beam_size=n, max_length=10 * n) for n in (1, 3, 3, 2)]
    for sequence in sequences:
        budget.reserve(sequence)
    for sequence in sequences:
        budget.release(sequence)
    assert (budget.rows, budget.padded_tokens, budget.reserved_bytes) == (0, 0, 0)


def test_a_sentence_that_can_never_run_is_known_whatever_runs() -> None:
    budget = create(max_batch_rows=4)
    budget.reserve(make_sequence(beam_size=4))
    assert budget.fits_alone(make_sequence(beam_size=4))
    assert not budget.fits_alone(make_sequence(beam_size=5))


def test_one_misfit_among_many_is_found() -> None:
    budget = create(max_batch_tokens=100)
    wide, long = make_sequence((1,) * 5, beam_size=16), make_sequence((1,) * 50, beam_size=2)
    assert budget.find_misfit([]) is None
    assert budget.find_misfit([wide, wide]) is None
    assert budget.find_misfit([wide, long]) is None
    misfit = make_sequence((1,) * 51, beam_size=2)
    assert budget.find_misfit([wide, misfit, long]) is misfit
