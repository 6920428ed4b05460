from __future__ import annotations

from service.request import Sequence
from service.scheduler.queue import WaitingQueue
from tests.builders import make_sequence


def sentence(request_id: str, length: int = 3) -> Sequence:
    return make_sequence((1,) * length, request_id=request_id)


def fill(*sequences: Sequence) -> WaitingQueue:
    queue = WaitingQueue()
    for sequence in sequences:
        queue.add(sequence)
    return queue


def take_all(queue: WaitingQueue) -> list[Sequence]:
    taken = []
    while (sequence := queue.peek()) is not None:
        taken.append(queue.take(sequence.sequence_id))
    return taken


def test_requests_take_turns() -> None:
    a1, a2, a3, b1 = (sentence(name) for name in "aaab")
    assert take_all(fill(a1, a2, a3, b1)) == [a1, b1, a2, a3]


def test_sentences_of_one_request_keep_their_order() -> None:
    sequences = [sentence("a") for _ in range(5)]
    assert take_all(fill(*sequences)) == sequences


def test_a_short_call_is_next_but_one_after_a_document() -> None:
    document = [sentence("document") for _ in range(1000)]
    call = sentence("call")
    assert take_all(fill(*document, call)).index(call) == 1


def test_company_of_similar_length_is_preferred_within_the_window() -> None:
    queue = fill(*(sentence("a", length) for length in (9, 4, 5, 3)))
    assert [len(queue.peek(3, window).source_ids) for window in (1, 2, 4)] == [9, 4, 3]


def test_the_oldest_of_equal_length_comes_first() -> None:
    first, second = sentence("a", 4), sentence("a", 4)
    assert fill(first, second).peek(4, 2) is first


def test_removing_keeps_the_turn_of_the_request() -> None:
    a1, b1, a2 = sentence("a"), sentence("b"), sentence("a")
    queue = fill(a1, b1, a2)
    queue.remove(a1.sequence_id)
    assert take_all(queue) == [a2, b1]


def test_an_empty_queue_offers_nothing() -> None:
    queue = fill(only := sentence("a"))
    queue.take(only.sequence_id)
    assert queue.peek() is None
    assert len(queue) == 0
    assert only.sequence_id not in queue
    assert list(queue) == []


def test_documents_come_after_short_requests_but_each_has_a_sentence_running() -> None:
    d = [sentence("document") for _ in range(9)]
    e = [sentence("other document") for _ in range(9)]
    a1, a2, b1 = sentence("a"), sentence("a"), sentence("b")
    expected = [d[0], e[0], a1, b1, a2, d[1], e[1], d[2], e[2]]
    assert take_all(fill(*d, *e, a1, a2, b1))[:9] == expected


def test_a_document_of_which_nothing_runs_any_more_has_its_turn_before_later_calls() -> None:
    queue = fill(*(sentence("document") for _ in range(9)))
    for _ in range(2):
        queue.take(queue.peek().sequence_id)
    queue.add(early := sentence("early"))
    queue.end("document")
    assert queue.peek() is early  # something of it still runs
    queue.end("document")
    queue.add(sentence("late"))
    queue.take(early.sequence_id)
    assert queue.peek().request_id == "document"


def test_a_flood_of_short_calls_leaves_a_document_one_sentence_at_a_time() -> None:
    queue = fill(*(sentence("document") for _ in range(9)))
    taken = []
    for number in range(60):  # one runs at a time, and a new call comes with each
        queue.add(sentence(f"call {number}"))
        taken.append(queue.take(queue.peek().sequence_id))
        queue.end(taken[-1].request_id)
    assert 5 <= [each.request_id for each in taken].count("document") <= 9


def test_a_document_near_its_end_is_short() -> None:
    queue = fill(*(sentence("document") for _ in range(6)))
    assert not queue.has_short_requests
    first = queue.take(queue.peek().sequence_id)
    assert not queue.is_preferred("document")
    queue.take(queue.peek().sequence_id)
    queue.end(first.request_id)
    assert not queue.is_preferred("document")  # five are left
    queue.end(first.request_id)
    assert queue.is_preferred("document")
    assert queue.has_short_requests


def test_nothing_is_remembered_of_requests_that_are_gone() -> None:
    queue = fill(*(sentence(name) for name in "aaaaaab"))
    while (sequence := queue.peek()) is not None:
        queue.take(sequence.sequence_id)
        queue.end(sequence.request_id)
    assert not queue.has_short_requests
    assert queue.is_preferred("a")
    queue.add(sentence("c"))
    queue.add(again := sentence("a"))
    assert [each.request_id for each in take_all(queue)] == ["c", again.request_id]


def test_documents_can_be_asked_for_alone() -> None:
    calls = [sentence("call"), sentence("other call")]
    d = [sentence("document", length) for length in (9, 4, 5, 3, 8, 7)]
    e = [sentence("other document") for _ in range(6)]
    queue = fill(calls[0], *d, *e, calls[1])
    assert queue.peek() is calls[0]
    assert queue.peek_document() is d[0]
    queue.take(d[0].sequence_id)
    assert queue.peek_document() is e[0]  # nothing of it runs
    queue.take(e[0].sequence_id)
    assert queue.peek_document(3, 4) is d[3]
    assert fill(*calls).peek_document() is None


def test_a_document_that_becomes_short_is_none_any_more() -> None:
    queue = fill(*(d := [sentence("document") for _ in range(5)]))
    assert queue.peek_document() is d[0]
    queue.remove(d[0].sequence_id)
    assert queue.peek_document() is None
    assert queue.peek() is d[1]
    queue.add(sentence("document"))
    assert queue.peek_document() is d[1]


def test_only_as_many_are_counted_as_matter() -> None:
    queue = fill(*(d := [sentence("document") for _ in range(9)]))
    queue.take(d[0].sequence_id)
    assert [queue.count_documents(most) for most in (3, 8, 20)] == [3, 8, 8]
    assert queue.count_next(20) == 8
    queue.add(sentence("call"))
    assert queue.count_next(20) == 1
    assert queue.count_documents(20) == 8
