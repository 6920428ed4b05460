from __future__ import annotations

from typing import Any

import pytest

from service.config import SchedulerConfig
from service.errors import (
    CancelledRequestError,
    DeadlineError,
    DrainingError,
    EngineStepError,
)
from service.request import FinishReason, Hypothesis, Outcome, Sequence
from service.scheduler.lanes import Lane
from service.scheduler.scheduler import Scheduler
from tests.builders import make_sequence

ANSWER = (Hypothesis(token_ids=(1,), log_prob=-1.0, score=-0.5, finish_reason=FinishReason.STOP),)


def create(**limits: Any) -> Scheduler:
    return Scheduler(
        SchedulerConfig(**limits),
        lambda rows, target, sentences, source: rows * target + sentences * source,
    )


def outcomes(departures: list[Any]) -> dict[int, Outcome]:
    return {departure.result.sequence_id: departure.result.outcome for departure in departures}


def test_all_that_fit_join_at_once() -> None:
    scheduler = create(max_batch_rows=8)
    sequences = [make_sequence(beam_size=4) for _ in range(3)]
    for sequence in sequences:
        scheduler.add(sequence, 0.0)
    plan = scheduler.schedule(0.0)
    assert plan.admitted == sequences[:2]
    assert (scheduler.num_running, scheduler.num_waiting) == (2, 1)


def test_a_sentence_joins_while_others_are_in_the_middle() -> None:
    scheduler = create()
    scheduler.add(first := make_sequence(), 0.0)
    assert scheduler.schedule(0.0).admitted == [first]
    scheduler.add(second := make_sequence(), 0.1)
    plan = scheduler.schedule(0.2)
    assert plan.admitted == [second]
    assert plan.num_running == 2


def test_room_is_given_back_in_the_step_in_which_a_sentence_finishes() -> None:
    scheduler = create(max_batch_rows=4)
    first, second = make_sequence(beam_size=4), make_sequence(beam_size=4)
    scheduler.add(first, 0.0)
    scheduler.add(second, 0.0)
    scheduler.schedule(0.0)
    assert scheduler.schedule(0.5).admitted == []
    (departure,) = scheduler.finish({0: ANSWER}, 1.0)
    assert departure.result.hypotheses == ANSWER
    assert (departure.arrived, departure.admitted, departure.left) == (0.0, 0.0, 1.0)
    assert scheduler.schedule(1.0).admitted == [second]


def test_who_needs_much_room_is_not_passed_by_who_needs_little() -> None:
    scheduler = create(max_batch_rows=8)
    scheduler.add(make_sequence(request_id="a", beam_size=4), 0.0)
    scheduler.schedule(0.0)
    scheduler.add(make_sequence(request_id="b", beam_size=8), 0.1)
    scheduler.add(make_sequence(request_id="c", beam_size=1), 0.2)
    assert scheduler.schedule(0.3).admitted == []


def test_a_document_alone_fills_the_batch() -> None:
    scheduler = create(max_batch_rows=16, max_shared_rows=8)
    for _ in range(9):
        scheduler.add(make_sequence(request_id="document", beam_size=4), 0.0)
    assert len(scheduler.schedule(0.0).admitted) == 4


def add_document(scheduler: Scheduler, name: str = "document", count: int = 9) -> list[Sequence]:
    sequences = [make_sequence(request_id=name, beam_size=4) for _ in range(count)]
    for sequence in sequences:
        scheduler.add(sequence, 0.0)
    return sequences


def test_documents_leave_rows_to_short_calls_while_there_are_any() -> None:
    scheduler = create(max_batch_rows=16, max_shared_rows=8)
    add_document(scheduler)
    add_document(scheduler, "other document")
    scheduler.add(call := make_sequence(request_id="call", beam_size=2), 0.0)
    admitted = [each.request_id for each in scheduler.schedule(0.0).admitted]
    assert admitted == ["document", "other document"]
    assert scheduler.schedule(0.0).admitted == [call]
    calls = [make_sequence(request_id=f"call {number}", beam_size=2) for number in range(3)]
    for each in calls:
        scheduler.add(each, 1.0)
    assert scheduler.schedule(1.0).admitted == calls  # to the last row
    for each in (call, *calls):
        scheduler.abort(each.sequence_id)
    assert len(scheduler.schedule(2.0).admitted) == 2  # nobody else is there: documents fill it


def test_short_calls_and_documents_do_not_run_in_the_same_step() -> None:
    scheduler = create()
    document = add_document(scheduler)
    scheduler.add(call := make_sequence(request_id="call"), 0.0)
    plan = scheduler.schedule(0.0)
    assert (plan.lane, plan.admitted, plan.num_running) == (Lane.DOCUMENTS, document, 9)
    scheduler.finish({}, 0.005)
    plan = scheduler.schedule(0.005)
    assert (plan.lane, plan.admitted, plan.num_running) == (Lane.SHORT, [call], 1)
    assert scheduler.num_running == 10


def test_both_lanes_go_on_while_both_have_something_to_do() -> None:
    scheduler = create()
    add_document(scheduler)
    scheduler.add(make_sequence(request_id="call"), 0.0)
    lanes = []
    for number in range(20):
        lanes.append(scheduler.schedule(float(number)).lane)
        scheduler.finish({}, number + 1.0)
    assert lanes.count(Lane.DOCUMENTS) == 10


def test_who_leaves_leaves_the_step_of_the_own_lane() -> None:
    scheduler = create()
    document = add_document(scheduler)
    scheduler.add(call := make_sequence(request_id="call"), 0.0)
    for _ in range(2):
        scheduler.schedule(0.0)
    (departure,) = scheduler.finish({0: ANSWER}, 1.0)
    assert departure.sequence is call
    assert scheduler.schedule(1.0).lane is Lane.DOCUMENTS
    departures = scheduler.fail(EngineStepError("broken"), 1.0)
    assert [departure.sequence for departure in departures] == document


def test_an_aborted_sentence_leaves_its_lane_whosever_step_is_next() -> None:
    scheduler = create()
    document = add_document(scheduler)
    scheduler.schedule(0.0)
    scheduler.finish({}, 0.1)
    scheduler.add(make_sequence(request_id="call"), 0.1)
    scheduler.abort(document[3].sequence_id)
    plan = scheduler.schedule(0.2)
    assert plan.lane is Lane.SHORT
    assert plan.kept == {Lane.DOCUMENTS: [0, 1, 2, 4, 5, 6, 7, 8]}


def test_a_sentence_of_a_document_that_needs_much_room_is_not_passed_by_short_calls() -> None:
    scheduler = create(max_batch_rows=8)
    scheduler.add(first := make_sequence(request_id="first", beam_size=4), 0.0)
    scheduler.schedule(0.0)
    wide = [make_sequence(request_id="document", beam_size=8) for _ in range(9)]
    for sequence in wide:
        scheduler.add(sequence, 0.1)
    scheduler.add(make_sequence(request_id="call", beam_size=1), 0.2)
    assert scheduler.schedule(0.3).admitted == []
    scheduler.abort(first.sequence_id)
    plan = scheduler.schedule(0.4)
    assert (plan.lane, plan.admitted) == (Lane.DOCUMENTS, wide[:1])


def test_sentences_join_a_full_batch_in_groups() -> None:
    scheduler = create(max_batch_rows=64)
    document = add_document(scheduler, count=40)
    assert scheduler.schedule(0.0).admitted == document[:16]
    for number in range(3):
        scheduler.finish({0: ANSWER}, number)
        assert scheduler.schedule(number).admitted == []
    scheduler.finish({0: ANSWER}, 4.0)
    assert scheduler.schedule(4.0).admitted == document[16:20]


def add_calls(scheduler: Scheduler, count: int) -> list[Sequence]:
    calls = [make_sequence(request_id=f"call {number}", beam_size=4) for number in range(count)]
    for call in calls:
        scheduler.add(call, 0.0)
    return calls


def test_beside_few_others_nobody_is_kept_waiting() -> None:
    scheduler = create()
    add_calls(scheduler, 15)
    assert scheduler.schedule(0.0).num_running == 15
    (call,) = add_calls(scheduler, 1)
    assert scheduler.schedule(1.0).admitted == [call]


def test_beside_a_crowd_a_sentence_waits_three_steps_for_company() -> None:
    scheduler = create()
    add_calls(scheduler, 16)
    scheduler.schedule(0.0)
    calls = add_calls(scheduler, 1)
    for _ in range(3):
        assert scheduler.schedule(1.0).admitted == []
    assert scheduler.schedule(1.0).admitted == calls
    calls = add_calls(scheduler, 3)
    assert scheduler.schedule(2.0).admitted == []
    calls += add_calls(scheduler, 1)
    assert scheduler.schedule(3.0).admitted == calls  # four have found each other


def test_the_last_room_is_taken_by_those_who_are_left() -> None:
    scheduler = create(max_batch_rows=64)
    calls = add_calls(scheduler, 17)
    assert scheduler.schedule(0.0).admitted == calls[:16]
    scheduler.finish({0: ANSWER}, 1.0)
    assert scheduler.schedule(1.0).admitted == calls[16:]


def test_aborted_running_sentence_leaves_before_the_next_step() -> None:
    scheduler = create()
    sequences = [make_sequence(beam_size=4) for _ in range(3)]
    for sequence in sequences:
        scheduler.add(sequence, 0.0)
    scheduler.schedule(0.0)
    scheduler.abort(sequences[1].sequence_id)
    plan = scheduler.schedule(1.0)
    assert plan.kept == {Lane.SHORT: [0, 2]}
    (departure,) = plan.departures
    assert departure.result.outcome is Outcome.CANCELLED
    assert isinstance(departure.result.error, CancelledRequestError)
    assert scheduler.budget.rows == 8


def test_aborted_waiting_sentence_never_runs() -> None:
    scheduler = create()
    scheduler.add(sequence := make_sequence(), 0.0)
    scheduler.abort(sequence.sequence_id)
    plan = scheduler.schedule(0.0)
    assert outcomes(plan.departures) == {sequence.sequence_id: Outcome.CANCELLED}
    assert plan.admitted == []
    assert plan.departures[0].admitted is None


def test_aborting_what_is_gone_is_no_fault() -> None:
    scheduler = create()
    scheduler.add(sequence := make_sequence(), 0.0)
    scheduler.schedule(0.0)
    scheduler.finish({0: ANSWER}, 1.0)
    scheduler.abort(sequence.sequence_id)
    assert scheduler.seconds_until_step(1.0) is None
    assert scheduler.schedule(2.0).departures == []


def test_deadlines_end_waiting_and_running_sentences() -> None:
    scheduler = create(max_batch_rows=4)
    running = make_sequence(beam_size=4, deadline=5.0)
    waiting = make_sequence(beam_size=4, deadline=4.0)
    patient = make_sequence(beam_size=4, deadline=9.0)
    for sequence in (running, waiting, patient):
        scheduler.add(sequence, 0.0)
    scheduler.schedule(0.0)
    assert scheduler.schedule(3.9).departures == []
    plan = scheduler.schedule(5.0)
    assert outcomes(plan.departures) == {
        running.sequence_id: Outcome.EXPIRED,
        waiting.sequence_id: Outcome.EXPIRED,
    }
    assert all(isinstance(d.result.error, DeadlineError) for d in plan.departures)
    assert plan.kept == {Lane.SHORT: []}
    assert plan.admitted == [patient]


def test_failure_of_the_encoder_fails_only_those_that_joined() -> None:
    scheduler = create()
    scheduler.add(first := make_sequence(), 0.0)
    scheduler.schedule(0.0)
    scheduler.add(second := make_sequence(), 0.0)
    scheduler.schedule(0.0)
    departures = scheduler.fail(EngineStepError("broken"), 1.0, last=1)
    assert outcomes(departures) == {second.sequence_id: Outcome.FAILED}
    departures = scheduler.fail(EngineStepError("broken"), 1.0)
    assert outcomes(departures) == {first.sequence_id: Outcome.FAILED}
    assert scheduler.budget.rows == 0


def test_a_sentence_without_an_answer_fails() -> None:
    scheduler = create()
    scheduler.add(make_sequence(), 0.0)
    scheduler.schedule(0.0)
    (departure,) = scheduler.finish({0: ()}, 1.0)
    assert departure.result.outcome is Outcome.FAILED
    assert isinstance(departure.result.error, EngineStepError)


def test_closing_answers_everybody() -> None:
    scheduler = create(max_batch_rows=4)
    for _ in range(3):
        scheduler.add(make_sequence(beam_size=4), 0.0)
    scheduler.schedule(0.0)
    departures = scheduler.close(DrainingError("stop"), Outcome.CANCELLED, 1.0)
    assert len(departures) == 3
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.budget.rows) == (0, 0, 0)


def test_an_idle_engine_waits_a_little_for_company() -> None:
    scheduler = create(max_queue_delay_seconds=0.01, max_batch_rows=8)
    assert scheduler.seconds_until_step(0.0) is None
    scheduler.add(make_sequence(beam_size=4), 1.0)
    assert scheduler.seconds_until_step(1.0) == pytest.approx(0.01)
    assert scheduler.seconds_until_step(1.5) == 0.0
    scheduler.add(make_sequence(beam_size=4), 1.001)
    assert scheduler.seconds_until_step(1.002) == 0.0


def test_a_busy_engine_waits_for_nobody() -> None:
    scheduler = create(max_queue_delay_seconds=0.01)
    scheduler.add(make_sequence(), 1.0)
    scheduler.schedule(1.0)
    scheduler.add(make_sequence(), 1.1)
    assert scheduler.seconds_until_step(1.1) == 0.0


def test_an_idle_engine_encodes_more_at_once_but_not_without_end() -> None:
    scheduler = create(max_encode_tokens=10)
    for _ in range(9):
        scheduler.add(make_sequence((1,) * 5), 0.0)
    assert len(scheduler.schedule(0.0).admitted) == 8


def test_few_source_tokens_join_in_one_step_while_others_are_decoding() -> None:
    scheduler = create(max_encode_tokens=10)
    scheduler.add(make_sequence((1,) * 20), 0.0)
    scheduler.add(make_sequence((1,) * 20), 0.0)
    assert len(scheduler.schedule(0.0).admitted) == 2
    for length in (6, 4, 1):
        scheduler.add(make_sequence((1,) * length, request_id="other"), 0.0)
    assert [len(s.source_ids) for s in scheduler.schedule(0.0).admitted] == [6, 4]
    assert [len(s.source_ids) for s in scheduler.schedule(0.0).admitted] == [1]
    scheduler.add(make_sequence((1,) * 50), 0.0)
    assert len(scheduler.schedule(0.0).admitted) == 1


def test_far_deadlines_of_sentences_that_are_gone_do_not_pile_up() -> None:
    scheduler = create()
    for _ in range(5000):
        scheduler.add(make_sequence(deadline=1e9), 0.0)
        scheduler.schedule(0.0)
        scheduler.finish({0: ANSWER}, 0.0)
    assert scheduler.num_deadlines < 2000
