"""Tests of Client (caller.py, connection.py): one call at a time, against scripted peers."""

import contextlib
import errno
import gc
import socket
import threading
import time
import weakref

import pytest

from tests.helpers.brokers.scripted import pong, scripted
from wakeq import Client, errors
from wakeq.client import connection, route
from wakeq.client.connection import Connection, broken, dial
from wakeq.protocol.wire.worker import codec as wire

DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "PAUSE_S_MIN", 0.0)


# Calls ----------------------------------------------------------------------------------------------------


def test_publish_without_answer_is_repeated_in_the_same_session() -> None:
    seen: list[wire.Command] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        seen.append(command)
        return wire.Ok(uid="first", cmd_id=command.cmd_id) if connection == 2 else None

    with scripted(script) as address, Client(address) as client:
        uid = client.publish("q", {"a": 1})

    assert uid == "first"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert isinstance(seen[0], wire.Pub)
    assert (seen[0].n, seen[0].message) == (1, '{"a":1}')


def test_waiting_fetch_subscribes_first() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> wire.Reply:
        seen.append(command)
        if isinstance(command, wire.Sub):
            return wire.Oksub(qname=command.qname)
        return wire.Msg(qname="q", uid="u", error_count=2, msg="/w==", enc="b64", lease="1.5", cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        message = client.fetch("q", wait=5)

    assert [type(command) for command in seen] == [wire.Sub, wire.Fet]
    assert message is not None
    assert (message.uid, message.body, message.delivery, message.lease) == ("u", b"\xff", 3, "1.5")


def test_refusal_is_raised_and_connection_stays_usable() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply:
        assert connection == 1
        if isinstance(command, wire.Ping):
            return wire.Pong(cmd_id=command.cmd_id)
        return wire.Nok(err="Q_NOT_FOUND", detail="no such queue", cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        with pytest.raises(errors.QueueNotFound, match="no such queue"):
            client.fetch("q")
        client.ping()


def test_create_without_answer_is_in_doubt_and_not_repeated() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> None:
        seen.append(command)

    with (
        scripted(script) as address,
        Client(address) as client,
        pytest.raises(errors.Disconnected, match="CREATE"),
    ):
        client.create_queue("q", max_size=5)

    assert len(seen) == 1


def test_empty_batch_sends_nothing() -> None:
    def script(_: int, command: wire.Command) -> wire.Reply:
        raise AssertionError(command)

    with scripted(script) as address, Client(address) as client:
        assert client.publish_many("q", []) == []
        assert client.ack_many([])


# Unreachable brokers -------------------------------------------------------------------------------


def test_unreachable_broker_is_reported_with_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(errors.BrokerUnreachable, match=address):
        Client(address)


def test_first_address_that_answers_is_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"127.0.0.1:{listener.getsockname()[1]}"

    with scripted(pong) as address, Client(f"{nobody},{address}") as client:
        client.ping()
        assert client.address == address


def test_client_tries_again_after_it_gave_up() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        return pong(connection, command) if connection > 2 else None

    with scripted(script) as address, Client(address, reconnect_for_s=0) as client:
        with pytest.raises(errors.Disconnected):
            client.ping()
        client.ping()


def test_peer_that_never_greets_is_reported() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(errors.Disconnected, match="is it a wakeq worker port"),
    ):
        Client(f"127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=0.05)


def test_peer_with_another_protocol_is_reported_with_its_address() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        # The listener is closed at the end.
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
                connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(errors.Disconnected, match=f"{address} does not speak the worker .* is this the HTTP port"):
        Client(address)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(DEADLINE_S)


def test_hung_broker_is_reported_and_not_asked_again() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> list[wire.Reply]:
        seen.append(command)
        return []

    with (
        scripted(script) as address,
        Client(address, answer_timeout_s=0.05) as client,
        pytest.raises(errors.Disconnected, match="has not answered"),
    ):
        client.ping()

    assert len(seen) == 1


@pytest.mark.parametrize("greets", [True, False])
def test_silent_node_is_left_for_the_next_one_without_an_error(monkeypatch: pytest.MonkeyPatch, greets: bool) -> None:
    monkeypatch.setattr("wakeq.client.caller.SILENCE_LIMIT_S", 0.05)

    def answers(_: int, command: wire.Command) -> wire.Reply:
        return wire.Ok(uid="u", cmd_id=command.cmd_id)

    with (
        scripted(lambda *_: [], greets=greets) as hangs,
        scripted(answers) as works,
        Client(f"{hangs},{works}") as client,
    ):
        assert (client.publish("q", "x"), client.address) == ("u", works)


def test_broker_that_hangs_during_a_long_wait_is_pinged_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, type]] = []
    monkeypatch.setattr("wakeq.client.session.PING_AFTER_S", 0.05)

    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        seen.append((connection, type(command)))
        return wire.Nomsg(qname="q", cmd_id=command.cmd_id) if connection > 1 and isinstance(command, wire.Fet) else []

    with scripted(script) as address, Client(address, answer_timeout_s=0.05) as client:
        # This is no error: the fetch continues on the next connection.
        assert client.fetch("q", wait=600) is None

    assert seen[:3] == [(1, wire.Sub), (1, wire.Fet), (1, wire.Ping)]
    assert seen[3:5] == [(2, wire.Sub), (2, wire.Fet)]


def test_redirect_to_the_leader_is_followed() -> None:
    def leads(_: int, command: wire.Command) -> wire.Reply:
        return wire.Okcreate(qname="q", cmd_id=command.cmd_id)

    with scripted(leads) as leader:

        def follows(_: int, command: wire.Command) -> wire.Reply:
            return wire.Nok(err="NOT_LEADER", leader=leader, cmd_id=command.cmd_id)

        with scripted(follows) as follower, Client(follower) as client:
            # The refusal is definite, so even this command is repeated.
            client.create_queue("q")

            assert client.address == leader


def test_next_address_is_tried_when_no_leader_is_known() -> None:
    def follows(_: int, command: wire.Command) -> wire.Reply:
        return wire.Nok(err="NOT_LEADER", cmd_id=command.cmd_id)

    with scripted(follows) as follower, scripted(pong) as leader, Client(f"{follower},{leader}") as client:
        client.ping()

        assert client.address == leader


def test_error_without_any_leader_lists_all_attempts() -> None:
    def follows(_: int, command: wire.Command) -> wire.Reply:
        return wire.Nok(err="NOT_LEADER", cmd_id=command.cmd_id)

    with (
        scripted(follows) as one,
        scripted(follows) as two,
        Client(f"{one},{two}", reconnect_for_s=0.1) as client,
        pytest.raises(errors.NotLeader) as caught,
    ):
        client.ping()

    assert one in str(caught.value)
    assert two in str(caught.value)


# Sockets --------------------------------------------------------------------------------------------------


def test_socket_detects_a_dead_peer_in_about_eleven_seconds() -> None:
    with scripted(pong) as address:
        wire_to = connection.TcpConnection(address, timeout_s=5)

        option = wire_to._socket.getsockopt

        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 2
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 11_000
        wire_to.close()


def test_unrepeatable_call_detects_a_dead_connection_first() -> None:
    seen: list[tuple[int, type]] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        seen.append((connection, type(command)))
        if isinstance(command, wire.Ping):
            return None
        return wire.Okdrop(qname="q", cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        first = client._caller._connection
        assert first is not None
        # The peer closes the connection.
        first.send(b'{"cmd":"PING"}\n', timeout_s=1)
        until_s = time.monotonic() + DEADLINE_S
        while first.fault() is None and time.monotonic() < until_s:
            pass

        client.delete_queue("q")

    assert seen == [(1, wire.Ping), (2, wire.Drop)]


def test_connection_to_a_vanished_host_is_left_for_the_next_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled: list[str] = []

    def drops(_: int, command: wire.Command) -> wire.Reply:
        return wire.Okdrop(qname="q", cmd_id=command.cmd_id)

    def noting(address: str, context: None, *, timeout_s: float) -> Connection:
        dialled.append(address)
        return dial(address, context, timeout_s=timeout_s)

    monkeypatch.setattr("wakeq.client.blocking.dial", noting)
    with scripted(drops) as vanishes, scripted(drops) as works, Client(f"{vanishes},{works}") as client:
        connection = client._caller._connection
        # The system reports this when its probes are not answered.
        gone = OSError(errno.ETIMEDOUT, "Connection timed out")
        monkeypatch.setattr(connection, "fault", lambda: broken(vanishes, gone))

        client.delete_queue("q")

    assert dialled == [vanishes, works]


def test_single_address_is_dialled_again_after_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def drops(_: int, command: wire.Command) -> wire.Reply:
        return wire.Okdrop(qname="q", cmd_id=command.cmd_id)

    # Any pause exceeds a limit of zero.
    monkeypatch.setattr(route, "PAUSE_S_MIN", 0.05)
    with scripted(drops) as address, Client(address, reconnect_for_s=0) as client:
        gone = broken(address, OSError(errno.ETIMEDOUT, "Connection timed out"))
        monkeypatch.setattr(client._caller._connection, "fault", lambda: gone)

        client.delete_queue("q")


def test_dropped_client_is_garbage_collected() -> None:
    with scripted(pong) as address:
        client = Client(address)
        gone = weakref.ref(client._caller)
        client.close()

        del client
        gc.collect()

    assert gone() is None
