"""What a TaskFlux connection has begun: who waits for whom, and what is handed out once."""

import pytest

from wakeq.protocol.wire.taskflux.intents import Intent, Remove, Return, StopWaiting, Store, Take, Work
from wakeq.protocol.wire.taskflux.packets import (
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ListQueues,
    Packet,
)
from wakeq.protocol.wire.taskflux.under_way import UnderWay

LOOKING = (Dequeue("q"), Count("q"), ListQueues())
ENQUEUE = Enqueue("q", 1, b"a")
EVERYTHING = (*LOOKING, ENQUEUE, ClusterMetadataRequest(), CreateQueue("q"))


@pytest.mark.parametrize(
    ("work", "waiting"),
    [(Store("q", []), LOOKING), (Return("q", 7), (*LOOKING, ENQUEUE))],
    ids=lambda value: type(value).__name__,
)
def test_look_waits_for_every_change_and_an_enqueue_waits_for_a_returned_record(
    work: Work, waiting: tuple[Packet, ...]
) -> None:
    under_way, first, second = UnderWay(), Intent(work), Intent(work)
    under_way.begin(first)
    under_way.begin(second)

    assert under_way.take() == [first, second]
    for intent in (first, second):
        assert [packet for packet in EVERYTHING if not under_way.may_begin(packet)] == list(waiting)
        under_way.end(intent)

    assert all(map(under_way.may_begin, EVERYTHING))
    assert (under_way.count, under_way.take()) == (0, [])


@pytest.mark.parametrize(
    "work",
    [Dequeue("q", 5), Take("q", [Dequeue("q")]), ListQueues(), CreateQueue("q"), DeleteQueue("q")],
    ids=lambda w: type(w).__name__,
)
def test_exclusive_work_keeps_all_packets_waiting(work: Work) -> None:
    under_way, intent = UnderWay(), Intent(work)
    under_way.begin(intent)

    assert not any(map(under_way.may_begin, EVERYTHING))
    under_way.end(intent)

    assert all(map(under_way.may_begin, EVERYTHING))


def test_waiting_dequeue_alone_can_be_stopped_and_the_stop_has_no_outcome() -> None:
    under_way = UnderWay()
    under_way.begin(Intent(Remove("q", 7)))
    under_way.begin(Intent(Take("q", [Dequeue("q", 5)])))
    under_way.stop_waiting()
    assert len(under_way.take()) == under_way.count == 2

    waiting = UnderWay()
    waiting.begin(Intent(Dequeue("q", 5)))
    waiting.stop_waiting()

    assert [type(intent.work) for intent in waiting.take()] == [Dequeue, StopWaiting]
    assert waiting.count == 1
