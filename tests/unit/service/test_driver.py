from __future__ import annotations

from typing import Any

import pytest

from service.config import SchedulerConfig
from service.driver import Driver, sequence_stats
from service.engine.base import Encoded
from service.errors import DrainingError, EngineStepError
from service.request import FinishReason, Outcome, SequenceResult
from tests.builders import make_sequence
from tests.fakes import (
    EOS,
    FakeClock,
    FakeDecoder,
    FakeEngine,
    copy_script,
    failing_once,
    random_script,
)

V = 16


def create(engine: FakeEngine | None = None, **limits: Any) -> Driver:
    return Driver(
        model="m",
        engine=engine or FakeEngine(copy_script(V), vocab_size=V),
        config=SchedulerConfig(**limits),
        clock=FakeClock(tick=0.001),
    )


def run(driver: Driver) -> dict[int, SequenceResult]:
    results: dict[int, SequenceResult] = {}
    while driver.seconds_until_step() is not None:
        for departure in driver.step().departures:
            assert departure.result.sequence_id not in results
            results[departure.result.sequence_id] = departure.result
    return results


def assert_empty(driver: Driver) -> None:
    assert (driver.num_running, driver.num_waiting, driver.num_rows, driver.live_bytes) == (
        0,
        0,
        0,
        0,
    )


def test_a_sentence_is_translated() -> None:
    driver = create()
    driver.add(sequence := make_sequence((4, 5, 6, EOS)))
    (hypothesis,) = run(driver)[sequence.sequence_id].hypotheses
    assert hypothesis.token_ids == (4, 5, 6)
    assert hypothesis.finish_reason is FinishReason.STOP
    assert_empty(driver)


def test_sentences_join_and_leave_at_every_step() -> None:
    driver = create(max_batch_rows=8)
    long = make_sequence((4, 5, 6, 7, 8, 9, EOS), beam_size=4)
    short = [make_sequence((4, EOS), beam_size=4) for _ in range(3)]
    driver.add(long)
    left_at: dict[int, int] = {}
    for step in range(40):
        if step in (1, 2, 3):
            driver.add(short[step - 1])
        for departure in driver.step().departures:
            left_at[departure.result.sequence_id] = step
    assert len(left_at) == 4
    assert max(left_at, key=lambda i: left_at[i]) == long.sequence_id


def test_order_of_arrival_does_not_change_answers() -> None:
    engine = FakeEngine(random_script(V, sharpness=1.5), vocab_size=V)
    sources = [tuple(range(1, n)) for n in range(2, 12)]
    answers = []
    for order in (sources, sources[::-1]):
        driver = create(engine, max_batch_rows=12)
        sequences = {source: make_sequence(source, beam_size=3) for source in order}
        for sequence in sequences.values():
            driver.add(sequence)
        results = run(driver)
        answers.append([results[sequences[source].sequence_id].hypotheses for source in sources])
    assert answers[0] == answers[1]


def test_aborted_sequence_frees_its_rows() -> None:
    driver = create(FakeEngine(vocab_size=V))
    keep, drop = (
        make_sequence((1, 2), beam_size=4, max_length=90, min_target_tokens=80) for _ in range(2)
    )
    driver.add(keep)
    driver.add(drop)
    for _ in range(5):
        driver.step()
    rows = driver.num_rows
    driver.abort(drop.sequence_id)
    report = driver.step()
    assert [d.result.outcome for d in report.departures] == [Outcome.CANCELLED]
    assert report.stats is not None
    assert report.stats.num_rows == rows // 2
    assert run(driver)[keep.sequence_id].outcome is Outcome.FINISHED
    assert_empty(driver)


def test_aborting_the_only_sentence_computes_nothing() -> None:
    engine = FakeEngine(vocab_size=V)
    driver = create(engine)
    driver.add(sequence := make_sequence((1, 2), min_target_tokens=10))
    driver.step()
    driver.abort(sequence.sequence_id)
    report = driver.step()
    assert report.stats is None
    assert len(report.departures) == 1
    assert driver.seconds_until_step() is None
    assert_empty(driver)


def test_expired_sentence_stops_within_a_step() -> None:
    driver = create(FakeEngine(vocab_size=V))
    driver.add(make_sequence((1, 2), deadline=0.05, max_length=500, min_target_tokens=400))
    results = run(driver)
    assert [result.outcome for result in results.values()] == [Outcome.EXPIRED]
    assert_empty(driver)


def test_a_failed_decoder_step_fails_those_that_ran_and_nobody_else() -> None:
    engine = FakeEngine(copy_script(V), vocab_size=V, before_step=failing_once("broken"))
    driver = create(engine, max_batch_rows=4)
    first, second = make_sequence((4, EOS)), make_sequence((5, EOS))
    driver.add(first)
    driver.add(second)
    results = run(driver)
    assert results[first.sequence_id].outcome is Outcome.FAILED
    assert isinstance(results[first.sequence_id].error, EngineStepError)
    assert results[second.sequence_id].hypotheses[0].token_ids == (5,)
    assert_empty(driver)


def test_a_failed_step_of_a_document_leaves_short_calls_alone() -> None:
    engine = FakeEngine(copy_script(V), vocab_size=V)
    driver = create(engine)
    document = [make_sequence((4, 5, 6, EOS), request_id="document") for _ in range(9)]
    for sequence in document:
        driver.add(sequence)
    driver.add(call := make_sequence((7, EOS), request_id="call"))
    driver.step()
    driver.step()
    assert (driver.num_running, driver.num_waiting) == (10, 0)
    engine.before_step = failing_once("broken")
    while driver.num_running == 10:
        departed = driver.step().departures
    assert {departure.sequence.request_id for departure in departed} in (
        {"document"},
        {"call"},
    )
    results = {d.result.sequence_id: d.result for d in departed} | run(driver)
    failed = {i for i, result in results.items() if result.outcome is Outcome.FAILED}
    assert failed in ({call.sequence_id}, {s.sequence_id for s in document})
    assert_empty(driver)


def test_a_document_does_not_change_the_answers_of_short_calls() -> None:
    engine = FakeEngine(random_script(V, sharpness=1.5), vocab_size=V)
    sources = [tuple(range(1, n)) for n in range(2, 8)]
    answers = []
    for num_companions in (0, 30):
        driver = create(engine, max_batch_rows=24)
        for number in range(num_companions):
            driver.add(make_sequence((number % V, 3), request_id="document", beam_size=4))
        calls = [make_sequence(s, request_id=str(s), beam_size=3) for s in sources]
        for call in calls:
            driver.add(call)
        results = run(driver)
        answers.append([results[call.sequence_id].hypotheses for call in calls])
    assert answers[0] == answers[1]


def test_a_failed_encoder_fails_only_those_that_joined() -> None:
    failing = failing_once()

    def fail_from_the_second_on(sources: object) -> None:
        if joined:
            failing(sources)

    joined: list[int] = []
    engine = FakeEngine(copy_script(V), vocab_size=V, before_encode=fail_from_the_second_on)
    driver = create(engine)
    first, second, third = (make_sequence((n, 7, 8, EOS)) for n in (4, 5, 6))
    driver.add(first)
    driver.step()
    joined.append(1)
    driver.add(second)
    (departure,) = driver.step().departures
    assert departure.result.sequence_id == second.sequence_id
    assert departure.result.outcome is Outcome.FAILED
    driver.add(third)
    results = run(driver)
    assert results[first.sequence_id].hypotheses[0].token_ids == (4, 7, 8)
    assert results[third.sequence_id].hypotheses[0].token_ids == (6, 7, 8)
    assert_empty(driver)


def test_closing_answers_everybody_and_holds_nothing() -> None:
    driver = create(FakeEngine(vocab_size=V), max_batch_rows=4)
    for _ in range(3):
        driver.add(make_sequence((1, 2), beam_size=4, min_target_tokens=10))
    driver.step()
    departures = driver.close(DrainingError("stop"), Outcome.CANCELLED)
    assert len(departures) == 3
    assert_empty(driver)


def test_step_stats_count_what_padding_costs() -> None:
    driver = create(FakeEngine(vocab_size=V))
    driver.add(make_sequence((1,) * 5, beam_size=2, min_target_tokens=10))
    driver.add(make_sequence((1,) * 3, beam_size=2, min_target_tokens=10))
    first, second = driver.step().stats, driver.step().stats
    assert first is not None
    assert second is not None
    assert (first.encoder_padded_tokens, second.encoder_padded_tokens) == (10, 0)
    assert (first.num_rows, first.decoder_padded_tokens) == (2, 10)
    assert (second.num_rows, second.decoder_padded_tokens) == (4, 20)
    assert (first.num_sequences, second.num_sequences) == (2, 2)
    assert 0 < first.encode_seconds < first.step_seconds
    assert 0 < first.decode_seconds < first.step_seconds
    assert second.encode_seconds == 0


@pytest.mark.parametrize("max_length", [3, 20])
def test_sequence_stats_add_up(max_length: int) -> None:
    driver = create(max_batch_rows=4)
    for _ in range(2):
        driver.add(make_sequence((4, 5, 6, EOS), max_length=max_length))
    departures = []
    while driver.seconds_until_step() is not None:
        departures += driver.step().departures
    assert len(departures) == 2
    for stats in (sequence_stats("m", departure) for departure in departures):
        assert stats.truncated is (max_length == 3)
        assert stats.source_tokens == 4
        assert stats.target_tokens == (3 if stats.truncated else 4)
        parts = stats.queue_seconds + stats.encode_seconds + stats.decode_seconds
        assert parts == pytest.approx(stats.sentence_seconds)
        assert min(stats.queue_seconds, stats.encode_seconds, stats.decode_seconds) > 0


def test_a_decoder_that_cannot_take_sentences_fails_its_lane_and_works_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one with a shortlist whose columns cannot be fetched: some of it has changed by then."""
    driver = create()
    running, joining, later = (make_sequence((4, 5, 6, 7, 8, EOS)) for _ in range(3))
    driver.add(running)
    assert not driver.step().departures
    fail, admit = failing_once(), FakeDecoder.admit

    def admit_half(decoder: FakeDecoder, encoded: Encoded) -> None:
        admit(decoder, encoded)
        fail(encoded)

    monkeypatch.setattr(FakeDecoder, "admit", admit_half)
    driver.add(joining)
    results = run(driver)
    assert {i: result.outcome for i, result in results.items()} == {
        running.sequence_id: Outcome.FAILED,
        joining.sequence_id: Outcome.FAILED,
    }
    assert_empty(driver)
    driver.add(later)
    assert run(driver)[later.sequence_id].hypotheses[0].token_ids == (4, 5, 6, 7, 8)
