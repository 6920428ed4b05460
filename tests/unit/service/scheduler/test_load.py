from __future__ import annotations

import pytest

from service.scheduler.load import WorkerLoad, choose_worker, work_of
from tests.builders import make_sequence


def test_nothing_is_estimated_before_anything_is_known() -> None:
    load = WorkerLoad()
    load.add(make_sequence())
    assert load.seconds_until_done(1, 10) is None
    load.learn_speed(100, 1.0)
    assert load.seconds_until_done(1, 10) is None


def test_time_is_work_over_speed() -> None:
    load = WorkerLoad()
    load.learn_speed(1000, 2.0)
    load.learn_length(source_tokens=10, target_tokens=20)
    assert load.seconds_for(100) == pytest.approx(100 * 2.0 / 500)


def test_a_document_ahead_counts_only_for_its_turns() -> None:
    load = WorkerLoad()
    load.learn_speed(1, 1.0)
    load.learn_length(1, 1)
    for _ in range(100):
        load.add(make_sequence((1,), request_id="document", beam_size=1))
    assert load.seconds_until_done(1, 1) == pytest.approx(2.0)
    assert load.seconds_until_done(10, 10) == pytest.approx(20.0)
    assert load.seconds_until_done(1000, 1000) == pytest.approx(1100.0)


def test_what_need_not_wait_is_let_in_however_slow_the_past_was() -> None:
    load = WorkerLoad()
    load.learn_speed(1, 10.0)
    load.learn_length(1, 100)
    assert load.seconds_until_done(1000, 1000) == 0.0
    ahead = make_sequence((1,), request_id="ahead", beam_size=1)
    load.add(ahead)
    assert load.seconds_until_done(1, 1) == pytest.approx(2000.0)
    load.stop_waiting(ahead)
    assert load.seconds_until_done(1, 1) == 0.0


def test_the_recent_past_counts_more() -> None:
    load = WorkerLoad()
    load.learn_length(1, 1)
    load.learn_speed(1000, 10.0)
    for _ in range(20):
        load.learn_speed(10_000, 10.0)
    assert load.seconds_for(1000) == pytest.approx(1.0, rel=0.01)


def test_everything_given_back_leaves_nothing() -> None:
    load = WorkerLoad()
    load.learn_speed(1, 1.0)
    load.learn_length(1, 1)
    sequences = [make_sequence((1,) * n, request_id=str(n % 2)) for n in range(1, 6)]
    for sequence in sequences:
        load.add(sequence)
    assert load.outstanding_work == sum(map(work_of, sequences))
    for sequence in sequences:
        load.stop_waiting(sequence)
        load.leave(sequence)
    assert (load.outstanding_work, load.outstanding_short_work) == (0, 0)
    assert load.seconds_until_free() == 0.0


def test_short_requests_do_not_wait_for_documents() -> None:
    documents, calls = WorkerLoad(), WorkerLoad()
    document, call = make_sequence((1,) * 90), make_sequence((1,) * 5)
    documents.add(document)
    calls.add(call, is_short=True)
    assert documents.work_before(is_short=True) < calls.work_before(is_short=True)
    assert documents.work_before(is_short=False) > calls.work_before(is_short=False)
    documents.leave(document)
    calls.leave(call, is_short=True)
    assert documents.work_before(is_short=True) == calls.work_before(is_short=True) == (0, 0)


def loaded(*lengths: int, request_id: str | None = None, is_short: bool = True) -> WorkerLoad:
    load = WorkerLoad()
    for number, length in enumerate(lengths):
        name = request_id or str(number)
        load.add(make_sequence((1,) * length, request_id=name), is_short=is_short)
    return load


def test_an_idle_worker_is_chosen_before_any_other() -> None:
    assert choose_worker([loaded(8), loaded()], make_sequence((1,) * 8), is_short=True) == 1


def test_of_workers_with_as_much_to_do_the_one_with_sentences_like_it_is_chosen() -> None:
    loads = [loaded(*[10] * 9), loaded(30, 30, 30)]
    assert choose_worker(loads, make_sequence((1,) * 12), is_short=True) == 0
    assert choose_worker(loads, make_sequence((1,) * 25), is_short=True) == 1
    assert choose_worker(loads, make_sequence((1,) * 25), is_short=False) == 1


def test_a_worker_with_clearly_more_to_do_is_not_chosen_for_its_lengths() -> None:
    loads = [loaded(*[10] * 9), loaded(30, 30, 30, 30)]
    assert choose_worker(loads, make_sequence((1,) * 25), is_short=True) == 0


def test_a_worker_with_a_document_besides_is_not_chosen_for_its_lengths() -> None:
    beside = loaded(30, 30, 30)
    for _ in range(9):
        beside.add(make_sequence((1,) * 30, request_id="document"))
    assert choose_worker([beside, loaded(*[10] * 9)], make_sequence((1,) * 25), is_short=True) == 1


def test_the_mean_length_forgets_who_left() -> None:
    load = loaded(10, 20)
    assert load.mean_length == 15.0
    load.leave(make_sequence((1,) * 10), is_short=True)
    load.leave(make_sequence((1,) * 20), is_short=True)
    assert load.mean_length == 0.0
