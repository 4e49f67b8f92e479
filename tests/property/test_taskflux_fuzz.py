"""Arbitrary bytes from a TaskFlux client.  tests/fuzz/taskflux.py searches for worse ones, for as long as one likes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.taskflux.fuzz import check_conversation, greeting
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    NACK,
    AuthorizationRequest,
    BootstrapRequest,
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ListQueues,
    Packet,
)
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, LEGACY, Dialect

ENQUEUE, DEQUEUE, WAIT = Enqueue("q", 1, b"x"), Dequeue("q"), Dequeue("q", 9)
ONE_PHASE: list[list[Packet]] = [[ENQUEUE], [ENQUEUE] * 3, [DEQUEUE], [DEQUEUE] * 3, [Count("q")], [Count("a b")]]
TWO_PHASES: list[list[Packet]] = [
    [ENQUEUE, ACK], [ENQUEUE, ACK] * 3, [ENQUEUE, NACK], [DEQUEUE, ACK], [DEQUEUE, ACK] * 3, [WAIT, ACK] * 3,
    [WAIT, NACK], [ACK], [NACK], [DEQUEUE], [WAIT], [Count("q")], [CreateQueue("q")], [CreateQueue("q", 7)],
    [DeleteQueue("q")], [ListQueues()], [ClusterMetadataRequest()],
]  # fmt: skip
RARE: list[list[Packet]] = [[ENQUEUE], [AuthorizationRequest()], [BootstrapRequest(1, 0, 0)]]


def pieces(dialect: Dialect) -> st.SearchStrategy[bytes]:
    """Mostly what may come, sometimes anything at all."""

    def written(choices: list[list[Packet]]) -> st.SearchStrategy[bytes]:
        return st.sampled_from([encode(packets, dialect) for packets in choices])

    garbage = st.one_of(st.binary(min_size=1, max_size=4), st.just(b"CE\x01q" + bytes(8) + b"\xff" * 4))
    rare = garbage if dialect is LEGACY else st.one_of(garbage, written(RARE))
    known = written(ONE_PHASE if dialect is LEGACY else TWO_PHASES)
    return st.integers(0, 19).flatmap(lambda chance: known if chance else rare)


@settings(max_examples=examples(500), deadline=None)
@given(data=st.data(), told=st.integers(0, 255), waits=st.integers(0, 255), piece_bytes=st.integers(1, 200))
def test_arbitrary_bytes_are_answered_or_close_the_connection(
    data: st.DataObject, told: int, waits: int, piece_bytes: int
) -> None:
    dialect = data.draw(st.sampled_from(list(DIALECTS.values())))
    greets = data.draw(st.integers(0, 9)) > 0
    said = (greeting(dialect) if greets else b"") + b"".join(data.draw(st.lists(pieces(dialect), max_size=6)))

    check_conversation(dialect, said, piece_bytes=piece_bytes, told=told, waits=waits)
