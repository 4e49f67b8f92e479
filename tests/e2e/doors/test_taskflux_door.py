"""The TaskFlux door of a real broker: golden conversations, bad input, and the same queues as at the other doors."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.taskflux.raw import RawTaskFlux
from wakeq.protocol.wire.taskflux.codec import ResponseReader
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    EMPTY,
    NACK,
    OK,
    AuthorizationResponse,
    Bad,
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
    ErrorCode,
    ErrorResponse,
    ListQueues,
    ListQueuesResponse,
    Packet,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP, DIALECTS, LEGACY, SPEC, Dialect

VECTORS = Path(__file__).parents[2] / "vectors"


def _vectors(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((VECTORS / f"taskflux_{name}.json").read_text(encoding="utf-8"))["vectors"]
    return found


SESSIONS, MALFORMED = _vectors("sessions"), _vectors("malformed")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Return one broker with both dialects for all tests of this file; each leaves it as it was."""
    broker = BrokerProcess(tmp_path_factory.mktemp("taskflux") / "data", "--set", "taskflux_other_port=0")
    try:
        yield broker.start()
    finally:
        broker.close()


def address_of(broker: BrokerProcess, dialect: Dialect) -> tuple[str, int]:
    return broker.other_taskflux_address if dialect is CSHARP else broker.taskflux_address


@pytest.fixture
def queue(broker: BrokerProcess) -> Iterator[str]:
    """Return the name of a queue that exists for one test."""
    with RawTaskFlux(broker.taskflux_address) as client:
        assert client.ask(CreateQueue("q")) == OK
        yield "q"
        client.ask(DeleteQueue("q"))


def without_texts(packets: list[Packet | Bad]) -> list[Packet | Bad]:
    """Leave out free texts."""
    plain: dict[type, Any] = {
        BusinessError: lambda packet: BusinessError(packet.code),
        ErrorResponse: lambda packet: ErrorResponse(packet.code, ""),
        AuthorizationResponse: lambda packet: AuthorizationResponse(packet.success),
        BootstrapResponse: lambda packet: BootstrapResponse(packet.success),
    }
    return [plain.get(type(packet), lambda same: same)(packet) for packet in packets]


def name_of(vector: dict[str, Any]) -> str:
    return f"{vector['dialect']}-{vector['name']}"


# --- golden bytes ---


@pytest.mark.parametrize("in_pieces", [False, True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("session", SESSIONS, ids=name_of)
def test_golden_session_is_answered_as_written(broker: BrokerProcess, session: dict[str, Any], in_pieces: bool) -> None:
    dialect = DIALECTS[session["dialect"]]
    with RawTaskFlux(address_of(broker, dialect), dialect, greets=False) as client:
        for step in session["steps"]:
            data = bytes.fromhex(step["hex"])
            if step["direction"] == "client->server":
                for start in range(0, len(data), 3 if in_pieces else len(data)):
                    client.send(data[start : start + 3] if in_pieces else data)
            else:
                expected = without_texts(ResponseReader(dialect).receive(data))
                assert without_texts(client.take(len(expected))) == expected, step
    with RawTaskFlux(broker.taskflux_address) as client:
        for name in ("s1", "s2", "q1"):
            client.ask(DeleteQueue(name))
        while client.ask(Dequeue("")) != EMPTY:
            client.ask(ACK)


@pytest.mark.parametrize("vector", MALFORMED, ids=lambda vector: str(vector["name"]))
def test_malformed_input_is_answered_as_stated_and_disturbs_nobody(
    broker: BrokerProcess, queue: str, vector: dict[str, Any]
) -> None:
    dialect = DIALECTS.get(vector["dialect"], SPEC)
    with (
        RawTaskFlux(broker.taskflux_address) as neighbour,
        RawTaskFlux(address_of(broker, dialect), dialect, greets=False) as client,
    ):
        assert neighbour.ask(Enqueue(queue, 1, b"kept")) == OK
        _bring_to(client, vector["state"], queue, dialect)
        client.send(bytes.fromhex(vector["hex"]))

        _check_reaction(client, vector["expect"], vector["hex"], dialect)

        assert neighbour.ask(ACK) == OK
        expected = 2 if vector["state"] == "dequeue_pending" else 1
        assert neighbour.ask(Count(queue)) == CountResponse(expected)
        neighbour.ask(DeleteQueue("b255"))


def _bring_to(client: RawTaskFlux, state: str, queue: str, dialect: Dialect) -> None:
    if state == "connected":
        return
    client.send(bytes.fromhex("414e"))
    client.take()
    if state == "authorized":
        return
    client.send(bytes.fromhex("42000000000000000100000000" if dialect is LEGACY else "42000000010000000000000000"))
    client.take()
    if state == "enqueue_pending":
        assert client.ask(Enqueue(queue, 1, b"dropped")) == OK
    elif state == "dequeue_pending":
        client.say(Enqueue(queue, 1, b"held"), ACK, Dequeue(queue))
        assert isinstance(client.take(3)[2], Record)


def _check_reaction(client: RawTaskFlux, expect: str, sent: str, dialect: Dialect) -> None:
    alive: Packet = Count("")
    match expect.partition(",")[0].partition("(")[0].strip():
        case "close":
            assert client.rest() == []
        case "AuthorizationResponse":
            assert without_texts(client.rest()) == [AuthorizationResponse(False)]
        case "BootstrapResponse":
            assert without_texts(client.rest()) == [BootstrapResponse(False)]
        case "ErrorResponse" if "stays open" in expect:
            assert without_texts(client.take()) == [ErrorResponse(0, "")]
            assert isinstance(client.ask(alive), CountResponse)
        case "ErrorResponse":
            assert without_texts(client.rest()) == [ErrorResponse(0, "")]
        case "ignored":
            assert isinstance(client.ask(alive), CountResponse)
        case "CommandResponse Error 1" | "CommandResponse Error 3":
            code = ErrorCode(int(expect.split()[2]))
            assert without_texts(client.take()) == [BusinessError(code)]
            assert isinstance(client.ask(alive), CountResponse)
        case _ if expect.startswith("Ok; after Ack"):
            assert client.take() == [OK]
            client.say(ACK)
            assert without_texts(client.take()) == [BusinessError(ErrorCode.BAD_NAME)]
        case "Ok":
            assert client.take() == [OK]
        case _:
            raise AssertionError(f"what does {expect!r} mean for {sent}?")


def test_half_a_packet_at_the_end_of_a_stream_is_ignored(broker: BrokerProcess, queue: str) -> None:
    with RawTaskFlux(broker.taskflux_address) as client:
        client.say(Enqueue(queue, 1, b"whole"), ACK)
        client.send(bytes.fromhex("4345"))
        client.socket.shutdown(socket.SHUT_WR)

        assert client.rest() == [OK, OK]


# --- one queue, all doors ---


def test_message_enqueued_at_one_door_is_fetched_at_the_other_both_ways(
    broker: BrokerProcess, queue: str, connect: Connect
) -> None:
    worker = connect(broker)
    with RawTaskFlux(broker.taskflux_address) as client, RawTaskFlux(broker.other_taskflux_address, CSHARP) as other:
        client.say(Enqueue(queue, 7, b"last"), ACK, Enqueue(queue, -7, b"first"), ACK)
        assert client.take(4) == [OK] * 4

        worker.ask("PUB", queue, message="mine", priority=-1)
        first = worker.ask("FET", queue)
        assert first["msg"] == "first"
        worker.ask("ACK", queue, uid=first["uid"])
        assert client.ask(Dequeue(queue)) == Record(-1, b"mine")
        assert client.ask(NACK) == OK
        assert other.ask(Dequeue(queue)) == Record(-1, b"mine", 3)  # the third record of the queue, and still so
        assert other.ask(ACK) == OK
        assert other.ask(Dequeue(queue)) == Record(7, b"last", 1)
        assert other.ask(ACK) == OK


def test_queue_policies_hold_at_every_door(broker: BrokerProcess, connect: Connect) -> None:
    worker = connect(broker)
    with RawTaskFlux(broker.taskflux_address) as client:
        assert client.ask(CreateQueue("two", 1, 2, 3, (-5, 5))) == OK
        client.say(Enqueue("two", 0, b"1"), ACK, Enqueue("two", 9, b"1"), ACK, Enqueue("two", 0, b"1234"), ACK)
        answers = client.take(6)
        assert [type(answer).__name__ for answer in answers[1::2]] == [
            "Ok",
            "KeyRangeViolation",
            "PayloadSizeViolation",
        ]
        assert worker.ask("PUB", "two", message="x", priority=6)["err"] == "KEY_RANGE"
        assert worker.ask("PUB", "two", message="abcd")["err"] == "TOO_LARGE"
        assert worker.ask("PUB", "two", message="x")["cmd"] == "ok"
        assert worker.ask("PUB", "two", message="x")["err"] == "QUEUE_FULL"

        assert isinstance(client.ask(Dequeue("two")), Record)  # what is held does not count
        assert worker.ask("PUB", "two", message="x")["cmd"] == "ok"
        assert client.ask(NACK) == OK
        assert client.ask(Count("two")) == CountResponse(3)  # what comes back is subject to no policy
        client.say(Enqueue("two", 0, b"1"), ACK)
        assert client.take(2) == [OK, QueueSizeViolation(2)]
        listed = client.ask(ListQueues())
        assert isinstance(listed, ListQueuesResponse)
        words = (("max-queue-size", "2"), ("max-payload-size", "3"), ("priority-range", "-5 5"))
        assert QueueInfo("two", 3, words) in listed.queues
        assert QueueInfo("", 0) in listed.queues
        assert client.ask(DeleteQueue("two")) == OK


def test_single_node_names_itself_as_leader(broker: BrokerProcess) -> None:
    with RawTaskFlux(broker.taskflux_address) as client:
        host, port = broker.taskflux_address

        assert client.ask(ClusterMetadataRequest()) == ClusterMetadataResponse((f"{host}:{port}",), 0, 0)


def test_payload_above_the_limit_is_a_violation_of_the_queue(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "taskflux_payload_bytes_max=10")
    with RawTaskFlux(broker.taskflux_address) as client:
        assert client.ask(CreateQueue("q", 1, 0)) == OK
        for name, violation in (("", PayloadSizeViolation(10)), ("q", QueueSizeViolation(0))):
            client.say(Enqueue(name, 1, bytes(11)), ACK)
            assert client.take(2) == [OK, violation]
        client.say(Enqueue("", 1, bytes(10)), ACK, Count(""))
        assert client.take(3) == [OK, OK, CountResponse(1)]


# --- what outlives a broker ---


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_restart_keeps_stored_records_and_no_removed_ones(start_broker: StartBroker, how: signal.Signals) -> None:
    broker = start_broker()
    with RawTaskFlux(broker.taskflux_address) as client:
        assert client.ask(CreateQueue("q", 2, key_range=(0, 9))) == OK
        client.say(Enqueue("q", 2, b"b"), ACK, Enqueue("q", 1, b"a"), ACK, Dequeue("q"), ACK)
        assert client.take(6) == [OK, OK, OK, OK, Record(1, b"a"), OK]
        broker.send_signal(how)
        broker.wait()
    broker.start()

    with RawTaskFlux(broker.taskflux_address) as client:
        assert client.ask(Count("q")) == CountResponse(1)
        assert client.ask(Dequeue("q")) == Record(2, b"b")


def test_record_leased_at_a_stop_is_there_after_the_start(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawTaskFlux(broker.taskflux_address) as client:
        client.say(Enqueue("", 1, b"a"), ACK, Dequeue(""))
        assert client.take(3) == [OK, OK, Record(1, b"a")]
        assert broker.terminate() == 0
    broker.start()

    with RawTaskFlux(broker.taskflux_address) as client:
        assert client.ask(Dequeue("")) == Record(1, b"a")


def test_legacy_client_removes_a_record_by_receiving_it(broker: BrokerProcess, queue: str) -> None:
    with RawTaskFlux(broker.other_taskflux_address, LEGACY) as client, RawTaskFlux(broker.taskflux_address) as spec:
        client.say(Enqueue(queue, 1, b"a"), Enqueue(queue, 2, b"b"), Dequeue(queue), Dequeue(queue), Dequeue(queue))

        assert client.take(5)[2:] == [Record(1, b"a"), Record(2, b"b"), EMPTY]
        assert spec.ask(Count(queue)) == CountResponse(0)
