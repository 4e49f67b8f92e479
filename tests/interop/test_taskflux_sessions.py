"""Whole TaskFlux connections of a server, bytes in and bytes out: golden sessions and bad input, on scripted queues."""

import json
from bisect import insort
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.taskflux.apart import taken_as
from tests.helpers.taskflux.conversation import HandTaskFluxSession
from wakeq.protocol.catalog import Policies, QueueRecord
from wakeq.protocol.log.entries import Draft, Result
from wakeq.protocol.queue.outcomes import Outcome
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.taskflux.answers import Known, policies_of
from wakeq.protocol.wire.taskflux.codec import RequestReader, ResponseReader, encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    EMPTY,
    NACK,
    OK,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BootstrapRequest,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    ListQueues,
    ListQueuesResponse,
    Packet,
    Record,
    Remove,
    Response,
    Return,
    Store,
    Take,
    Taken,
)
from wakeq.protocol.wire.taskflux.decoders import STRAY_BYTES_MAX
from wakeq.protocol.wire.taskflux.dialects import CSHARP, DIALECTS, LEGACY, SPEC, Dialect

FOLDER = Path(__file__).parents[1] / "vectors"
SESSIONS = json.loads((FOLDER / "taskflux_sessions.json").read_text())["vectors"]
MALFORMED = json.loads((FOLDER / "taskflux_malformed.json").read_text())["vectors"]
PAYLOAD_BYTES_MAX = 1 << 20


class ScriptedQueues:
    """A broker in a few lines: does every command at once, on sorted lists."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[int, int, bytes]]] = {"": []}  # (key, id, payload) by queue
        self.policies: dict[str, Policies] = {"": Policies()}
        self.held: dict[int, tuple[int, bytes]] = {}
        self.last_id = 0

    def do(self, command: Any) -> Any:
        """Return the outcome, as a response or as a queue says it."""
        match command:
            case Store(queue=name, drafts=drafts):
                return Outcome(name, 7, [self.enqueue(name, draft) for draft in drafts])
            case CreateQueue(queue=name) as create:
                return Outcome(name, 7, [self.create(name, policies_of(create))])
            case ListQueues():
                return [{"qname": name, "size": len(records)} for name, records in self.records.items()]
            case Remove(holding=holding):
                del self.held[holding.number]
                return OK
            case Return(queue=name, holding=holding):
                key, payload = self.held.pop(holding.number)
                insort(self.records[name], (key, holding.number, payload))
                return OK
            case Take(queue=name, dequeues=dequeues) if name in self.records:
                return self.take(name, len(dequeues))
            case Take(queue=name) | Dequeue(queue=name) | Count(queue=name) | DeleteQueue(queue=name) if (
                name not in self.records
            ):
                return BusinessError(ErrorCode.NO_QUEUE, "no such queue")
            case Count(queue=name):
                return CountResponse(len(self.records[name]))
            case Dequeue(queue=name):
                return self.dequeue(name)
            case DeleteQueue(queue=name):
                del self.records[name], self.policies[name]
                return OK
        raise AssertionError(f"nothing to do: {command}")

    def enqueue(self, name: str, draft: Draft) -> int:
        records = self.records.get(name)
        if records is None:
            return Result.NO_QUEUE
        policies = self.policies[name]
        if policies.max_size is not None and len(records) >= policies.max_size:
            return Result.QUEUE_FULL
        self.last_id += 1
        insort(records, (draft.priority, self.last_id, draft.body))
        return self.last_id

    def create(self, name: str, policies: Policies) -> int:
        if name in self.records:
            return Result.EXISTS
        self.records[name], self.policies[name] = [], policies
        return Result.DONE

    def take(self, name: str, count: int) -> Taken:
        taken, self.records[name] = self.records[name][:count], self.records[name][count:]
        return taken_as(*[Record(key, payload, number) for key, number, payload in taken])

    def dequeue(self, name: str) -> Any:
        if not self.records[name]:
            return EMPTY
        key, number, payload = self.records[name].pop(0)
        self.held[number] = (key, payload)
        return Record(key, payload, number)

    def find(self, name: str) -> QueueRecord | None:
        return QueueRecord(name, 7, self.policies[name], 0) if name in self.policies else None


class Connection:
    """Reader, session, queues and encoder: what a listener and its session are."""

    def __init__(self, dialect: Dialect, queues: ScriptedQueues) -> None:
        nodes = ClusterMetadataResponse(("127.0.0.1:2602",), 0, 0)
        self.reader = RequestReader(dialect)
        self.session = HandTaskFluxSession(dialect, known=Known(queues.find, lambda: nodes, PAYLOAD_BYTES_MAX))
        self.conversation = self.session.conversation
        self.queues = queues

    def say(self, data: bytes) -> bytes:
        """Return what is answered to these bytes."""
        self.work(self.session.receive(*self.reader.receive(data)))
        return encode(self.session.say(), self.conversation.dialect)

    def work(self, slots: list[Slot]) -> None:
        while slots:
            slots = self.session.resolve(*[(slot, self.queues.do(slot.command)) for slot in slots])


def without_texts(data: bytes, dialect: Dialect) -> list[Packet | Bad]:
    """Read answers; the free texts in them say nothing here."""
    return [plain(packet) for packet in ResponseReader(dialect).receive(data)]


def plain(packet: Packet | Bad) -> Packet | Bad:
    match packet:
        case BusinessError(code=code):
            return BusinessError(code)
        case ErrorResponse(code=number):
            return ErrorResponse(number, "")
        case AuthorizationResponse(success=success):
            return AuthorizationResponse(success)
        case BootstrapResponse(success=success):
            return BootstrapResponse(success)
        case _:
            return packet


def name_of(vector: dict[str, Any]) -> str:
    return f"{vector['dialect']}-{vector['name']}"


# --- golden sessions ---


def test_sessions_are_complete() -> None:
    assert len(SESSIONS) == 18
    assert len(MALFORMED) == 29


@pytest.mark.parametrize("step_bytes", [1, 5, 1000])
@pytest.mark.parametrize("session", SESSIONS, ids=name_of)
def test_golden_session_is_answered_as_written_in_any_pieces(session: dict[str, Any], step_bytes: int) -> None:
    dialect = DIALECTS[session["dialect"]]
    connection = Connection(SPEC if dialect is LEGACY else dialect, ScriptedQueues())
    said = b""

    for step in session["steps"]:
        data = bytes.fromhex(step["hex"])
        if step["direction"] == "client->server":
            said += b"".join(connection.say(data[at : at + step_bytes]) for at in range(0, len(data), step_bytes))
        else:
            assert without_texts(said, dialect) == without_texts(data, dialect), step["what"]
            said = b""

    assert said == b""
    assert connection.conversation.is_finished == (session["name"] == "unsupported_version")


def test_session_in_one_write_is_answered_in_one() -> None:
    session = next(session for session in SESSIONS if session["name"] == "create_enqueue_ack_dequeue_ack")
    asked = [bytes.fromhex(step["hex"]) for step in session["steps"] if step["direction"] == "client->server"]
    answered = [bytes.fromhex(step["hex"]) for step in session["steps"] if step["direction"] == "server->client"]

    said = Connection(SPEC, ScriptedQueues()).say(b"".join(asked))

    assert said == b"".join(answered)


# --- bad input ---


def connected(dialect: Dialect, state: str) -> Connection:
    """Return a connection that has come as far as a vector says."""
    connection = Connection(SPEC if dialect is LEGACY else dialect, ScriptedQueues())
    ack = encode([ACK], dialect) if dialect is not LEGACY else b""
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    said: dict[str, list[Packet]] = {
        "connected": [],
        "authorized": [AuthorizationRequest()],
        "ready": [AuthorizationRequest(), version],
        "enqueue_pending": [AuthorizationRequest(), version, Enqueue("", 1, b"pending")],
        "dequeue_pending": [AuthorizationRequest(), version, Enqueue("", 1, b"pending")],
    }
    connection.say(encode(said[state], dialect))
    if state == "dequeue_pending":
        connection.say(ack + encode([Dequeue("")], dialect))
    return connection


CASES = [
    (vector, dialect)
    for vector in MALFORMED
    for dialect in ([SPEC, CSHARP] if vector["dialect"] == "any" else [DIALECTS[vector["dialect"]]])
]


def expected_of(text: str) -> tuple[list[Response], bool]:
    """Return the answers and whether the connection closes, from the words of a vector."""
    closes = "then close" in text or text == "close, nothing sent"
    if text.startswith("AuthorizationResponse(false"):
        return [AuthorizationResponse(False)], closes
    if text.startswith("BootstrapResponse(false"):
        return [BootstrapResponse(False)], closes
    if text.startswith("ErrorResponse"):
        return [ErrorResponse(0, "")], closes
    if text.startswith("CommandResponse Error "):
        return [BusinessError(ErrorCode(int(text[-1])))], closes
    if text.startswith("Ok; after Ack: CommandResponse Error 1"):
        return [OK, BusinessError(ErrorCode.BAD_NAME)], closes
    if text.startswith("Ok ("):
        return [OK], closes
    assert text in ("close, nothing sent", "ignored, nothing sent"), text
    return [], closes


@pytest.mark.parametrize(("vector", "dialect"), CASES, ids=lambda case: case["name"] if isinstance(case, dict) else "")
def test_bad_input_is_answered_as_stated(vector: dict[str, Any], dialect: Dialect) -> None:
    connection = connected(dialect, vector["state"])
    answers, closes = expected_of(vector["expect"])
    data = bytes.fromhex(vector["hex"])

    said = connection.say(data + (encode([ACK], dialect) if "after Ack" in vector["expect"] else b""))

    assert without_texts(said, dialect) == answers
    assert connection.conversation.is_finished == closes
    assert len(connection.queues.records[""]) == (1 if "goes back" in vector["expect"] else 0)


@pytest.mark.parametrize("state", ["connected", "authorized"])
def test_packets_behind_a_refused_handshake_are_ignored(state: str) -> None:
    connection = connected(SPEC, state)

    said = connection.say(b"Z" + encode([Enqueue("", 1, b"x"), ACK], SPEC))

    assert said == b""
    assert connection.conversation.is_finished
    assert connection.queues.records[""] == []


def test_refusal_names_the_byte() -> None:
    connection = connected(SPEC, "ready")

    (answer,) = ResponseReader(SPEC).receive(connection.say(bytes.fromhex("434501710000000000000001ffffffff")))

    assert answer == ErrorResponse(0, "byte 12 of the packet: the length of the payload is -1, it must be 0 or more")


def test_packets_before_a_bad_one_are_answered_and_those_behind_it_ignored() -> None:
    connection = connected(SPEC, "ready")

    said = connection.say(
        encode([Enqueue("", 1, b"a"), ACK, Enqueue("", 1, b"b"), Count(""), Enqueue("", 1, b"c")], SPEC)
    )

    assert without_texts(said, SPEC) == [OK, OK, OK, ErrorResponse(0, "")]
    assert [payload for _, _, payload in connection.queues.records[""]] == [b"a"]
    assert connection.say(encode([ACK, Enqueue("", 1, b"d"), ACK], SPEC)) == b""


# --- dialects ---


def test_csharp_dialect_ignores_stray_packets_but_not_where_an_ack_is_due() -> None:
    connection = connected(CSHARP, "ready")
    strays = encode([OK, ErrorResponse(0, "x"), AuthorizationRequest(), ListQueuesResponse(()), EMPTY], CSHARP)

    assert connection.say(strays + encode([Count("")], CSHARP)) == encode([CountResponse(0)], CSHARP)
    said = connection.say(encode([Enqueue("", 1, b"x"), OK], CSHARP))

    assert without_texts(said, CSHARP) == [OK, ErrorResponse(0, "")]
    assert connection.conversation.is_finished


def test_csharp_dialect_refuses_a_long_stray_packet_unread() -> None:
    connection = connected(CSHARP, "ready")

    said = connection.say(encode([ErrorResponse(0, "x" * STRAY_BYTES_MAX)], CSHARP)[:20])

    assert without_texts(said, CSHARP) == [ErrorResponse(0, "")]
    assert connection.conversation.is_finished


def test_body_that_the_legacy_dialect_cannot_read_disturbs_nothing_else() -> None:
    connection = connected(LEGACY, "ready")

    said = connection.say(bytes.fromhex("43000000015a") + encode([Enqueue("", 1, b"a"), Count("")], LEGACY))

    assert without_texts(said, LEGACY) == [ErrorResponse(0, ""), EnqueueResponse(True), CountResponse(1)]
    assert not connection.conversation.closing


# --- anything ---

NAMES = st.sampled_from(["", "s1", "a b"])
KEYS = st.integers(0, 2)
COMMON: st.SearchStrategy[Packet] = (
    st.builds(Enqueue, NAMES, KEYS, st.binary(max_size=3)) | st.builds(Dequeue, NAMES) | st.builds(Count, NAMES)
)
FIELDLESS: list[Packet] = [ACK, ACK, ACK, NACK, ListQueues(), ClusterMetadataRequest()]
TWO_PHASE: st.SearchStrategy[Packet] = st.one_of(
    COMMON,
    st.sampled_from(FIELDLESS),
    st.builds(CreateQueue, NAMES, st.integers(0, 3), st.integers(-2, 2)),
    st.builds(DeleteQueue, NAMES),
)
PIPELINED = TWO_PHASE.flatmap(lambda packet: st.sampled_from([[packet], [packet, ACK], [packet, ACK] * 3]))


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(data=st.data(), step_bytes=st.integers(1, 9))
def test_conversation_in_any_pieces_is_answered_alike_and_loses_no_record(
    dialect: Dialect, data: st.DataObject, step_bytes: int
) -> None:
    if dialect is LEGACY:
        said = data.draw(st.lists(COMMON, max_size=15))
    else:
        said = [packet for packets in data.draw(st.lists(PIPELINED, max_size=8)) for packet in packets]
    wire = encode(said, dialect) + data.draw(st.binary(max_size=3))
    whole, pieces = connected(dialect, "ready"), connected(dialect, "ready")

    answered = whole.say(wire)

    assert answered == b"".join(pieces.say(wire[at : at + step_bytes]) for at in range(0, len(wire), step_bytes))
    assert whole.conversation.closing == pieces.conversation.closing
    for connection in (whole, pieces):
        connection.work(connection.session.lose())
        assert not connection.queues.held
