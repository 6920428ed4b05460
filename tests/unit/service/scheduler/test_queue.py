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
