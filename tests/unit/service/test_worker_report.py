from __future__ import annotations

from service.driver import StepReport
from service.request import DecodingOptions, Outcome, Sequence, SequenceResult
from service.scheduler.scheduler import Departure
from service.stats import StepStats
from service.worker_report import PendingReport

STATS = StepStats(
    model="en-pt",
    step_seconds=0.25,
    encode_seconds=0.0,
    decode_seconds=0.2,
    num_sequences=2,
    num_rows=8,
    encoder_padded_tokens=0,
    decoder_padded_tokens=80,
)


def sequence(sequence_id: int) -> Sequence:
    return Sequence(
        sequence_id=sequence_id,
        request_id=str(sequence_id),
        source_ids=(3, 0),
        options=DecodingOptions(),
        max_length=9,
    )


def step(*, joined: tuple[int, ...] = (), left: tuple[int, ...] = ()) -> StepReport:
    departures = [
        Departure(
            sequence=sequence(i),
            result=SequenceResult(sequence_id=i, outcome=Outcome.FINISHED),
            arrived=0.0,
            admitted=0.0,
            encode_seconds=0.0,
            left=1.0,
        )
        for i in left
    ]
    return StepReport(departures=departures, admitted=[sequence(i) for i in joined], stats=STATS)


def test_where_few_are_running_everything_is_told_at_once() -> None:
    pending = PendingReport()
    pending.add(step(joined=(4,), left=(2,)), is_busy=False)
    report = pending.take()
    assert report is not None
    assert report.admitted == [4]
    assert [result.sequence_id for result in report.results] == [2]
    assert pending.take() is None


def test_a_step_without_news_is_not_told() -> None:
    pending = PendingReport()
    pending.add(step(), is_busy=True)
    assert pending.take() is None
    assert pending.take(is_crowded=True) is None


def test_in_a_crowd_four_results_are_told_together() -> None:
    pending = PendingReport()
    pending.add(step(left=(1, 2)), is_busy=False)
    assert pending.take(is_crowded=True) is None
    pending.add(step(left=(3, 4, 5)), is_busy=False)
    report = pending.take(is_crowded=True)
    assert report is not None
    assert [result.sequence_id for result in report.results] == [1, 2, 3, 4, 5]


def test_in_a_crowd_nobody_waits_longer_than_three_steps() -> None:
    pending = PendingReport()
    told = []
    for left in ((), (), (1,), (), (), (), ()):
        pending.add(step(left=left), is_busy=False)
        told.append(pending.take(is_crowded=True) is not None)
    assert told == [False, False, False, False, False, True, False]


def test_when_the_crowd_is_gone_what_was_held_is_told() -> None:
    pending = PendingReport()
    pending.add(step(left=(1,)), is_busy=False)
    assert pending.take(is_crowded=True) is None
    report = pending.take()
    assert report is not None
    assert [result.sequence_id for result in report.results] == [1]


def test_busy_time_is_counted_from_report_to_report() -> None:
    pending = PendingReport()
    pending.add(step(), is_busy=True)
    pending.add(step(), is_busy=False)
    pending.add(step(left=(1,)), is_busy=True)
    report = pending.take()
    assert report is not None
    assert (report.busy_row_steps, report.busy_seconds) == (16, 0.5)
    pending.add(step(left=(2,)), is_busy=False)
    report = pending.take()
    assert report is not None
    assert (report.busy_row_steps, report.busy_seconds) == (0, 0.0)
