"""The TaskFlux door on real processes: any conversation in any pieces, any garbage, and the queues at rest after it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.brokers.broker import Broker
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from tests.helpers.taskflux.by_hand import HandTaskFlux
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    NACK,
    OK,
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ListQueues,
    Packet,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, LEGACY, Dialect

EXAMPLES = settings(max_examples=examples(40), deadline=None)

NAMES = st.sampled_from(["", "", "q", "q", "a b"])
ENQUEUES = st.builds(Enqueue, NAMES, st.integers(0, 2), st.binary(max_size=3))
COMMON: st.SearchStrategy[list[Packet]] = st.one_of(
    st.lists(ENQUEUES, min_size=1, max_size=3),
    st.lists(st.builds(Dequeue, NAMES), min_size=1, max_size=3),
    st.lists(st.builds(Count, NAMES), min_size=1, max_size=1),
)
ANY: st.SearchStrategy[list[Packet]] = st.one_of(
    ENQUEUES.map(lambda packet: [packet, ACK]),
    ENQUEUES.map(lambda packet: [packet, NACK]),
    st.integers(1, 5).map(lambda count: [Dequeue("q"), ACK] * count),
    st.lists(st.builds(Enqueue, st.sampled_from(["q", "q", "a b"]), st.integers(0, 2), st.binary(max_size=3))).map(
        lambda enqueues: [packet for enqueue in enqueues for packet in (enqueue, ACK)]
    ),
    st.builds(Dequeue, NAMES).map(lambda packet: [packet, NACK]),
    st.builds(Dequeue, NAMES, st.just(50)).map(lambda packet: [packet, ACK]),
    st.sampled_from([[ListQueues()], [ClusterMetadataRequest()], [ACK], [Count("q")], [DeleteQueue("q")]]),
    st.builds(CreateQueue, NAMES, st.integers(0, 3), st.integers(-2, 2)).map(lambda packet: [packet]),
    COMMON,
)


@contextmanager
def fresh_broker() -> Iterator[Broker]:
    with memory_folder() as path:
        broker = Broker(path)
        try:
            assert HandTaskFlux(broker).ask(CreateQueue("q")) == [OK]
            yield broker
        finally:
            broker.close()


def said_to(broker: Broker, dialect: Dialect, pieces: list[bytes]) -> list[object]:
    """Return what a client hears who says these pieces one after the other, and then waits."""
    client = HandTaskFlux(broker, dialect)
    heard: list[object] = []
    for piece in pieces:
        client.send(piece)
        heard += client.take()
    for _ in range(20):  # every Dequeue that waits, one after the other
        broker.advance(0.06)
        heard += client.take()
    client.close()
    assert not client.process.alive
    return heard


def at_rest(broker: Broker) -> list[tuple[str, object]]:
    """Return what all queues hold; nothing may be out or on its way."""
    for name in ("", "q"):
        if broker.queues.exists(name):
            broker.check(name)
            leases = broker.queue(name).leases
            assert leases is not None
            assert not leases.held
            assert not leases.ending
    client = HandTaskFlux(broker)
    return [(name, client.ask(Count(name))[0]) for name in ("", "q")]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@EXAMPLES
@given(data=st.data(), step_bytes=st.integers(1, 60))
def test_conversation_is_answered_alike_in_any_pieces(dialect: Dialect, data: st.DataObject, step_bytes: int) -> None:
    runs = data.draw(st.lists(COMMON if dialect is LEGACY else ANY, max_size=8))
    wire = encode([packet for run in runs for packet in run], dialect) + data.draw(st.binary(max_size=3))
    pieces = [wire[at : at + step_bytes] for at in range(0, len(wire), step_bytes)]

    with fresh_broker() as one, fresh_broker() as other:
        assert said_to(one, dialect, [wire]) == said_to(other, dialect, pieces)
        assert at_rest(one) == at_rest(other)


@EXAMPLES
@given(st.data())
def test_garbage_harms_no_other_client(data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from(list(DIALECTS.values())))
    start = encode([Enqueue("q", 1, b"mine"), ACK] if dialect is not LEGACY else [Enqueue("q", 1, b"mine")], dialect)
    pieces = data.draw(st.lists(st.binary(max_size=60), max_size=5))
    with fresh_broker() as broker:
        neighbour = HandTaskFlux(broker)
        assert neighbour.ask(Enqueue("", 1, b"kept"), ACK, Dequeue(""))[2] == Record(1, b"kept")

        said_to(broker, dialect, [start, *pieces])

        assert neighbour.ask(ACK, ClusterMetadataRequest())[0] == OK
        at_rest(broker)


@EXAMPLES
@given(cut=st.integers(0, 140), is_answered=st.booleans(), hangs_up=st.booleans())
def test_connection_that_ends_anywhere_holds_no_lease(cut: int, is_answered: bool, hangs_up: bool) -> None:
    packets = [
        Enqueue("q", 1, b"a"),
        ACK,
        Dequeue("q"),
        NACK,
        Dequeue("q"),
        ACK,
        Enqueue("q", 2, b"b"),
        ACK,
        Dequeue("q"),
    ]
    wire = encode(packets, DIALECTS["spec"])[:cut]
    with fresh_broker() as broker:
        client = HandTaskFlux(broker)

        client.send(wire)
        if is_answered:
            client.take()
        if hangs_up:
            client.end()
        client.close()

        assert not client.process.alive
        at_rest(broker)
