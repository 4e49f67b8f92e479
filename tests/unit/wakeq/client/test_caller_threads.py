"""Tests of caller.py: threads that share a client, interrupts and forks."""

import gc
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.brokers.scripted import pong, scripted
from wakeq import Client, errors
from wakeq.client import requests, route
from wakeq.client.caller import Caller, WaitingCall
from wakeq.client.route import Timeouts
from wakeq.protocol.wire.worker import codec as wire

DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "PAUSE_S_MIN", 0.0)


@contextmanager
def in_threads(*jobs: object) -> Iterator[list[threading.Thread]]:
    """Run each job in a thread of its own; all must end."""
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    yield threads
    # The threads are daemons: one that hangs fails the test and does not block the process.
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a call never ended"


class DrivenConnection:
    """A connection that the test drives: it sees the sent commands, gives the replies, and can block a write."""

    def __init__(self) -> None:
        self.writes = self.closes = 0
        self.may_send = threading.Event()
        self.may_send.set()
        self.replies: queue.Queue[bytes] = queue.Queue()
        self._sent: queue.Queue[wire.Command] = queue.Queue()

    def caller(self) -> Caller:
        """Return a caller that uses this connection."""
        self.replies.put(wire.encode([wire.HelloReply(version="7.7")]))
        caller = Caller("127.0.0.1:1", Timeouts(DEADLINE_S, DEADLINE_S, 0.0), lambda _: self)
        assert isinstance(self.sent_next(), wire.Hello)
        return caller

    def sent_next(self) -> wire.Command:
        """Return the next command that was written."""
        command = self._sent.get(timeout=DEADLINE_S)
        assert not isinstance(command, wire.Bad)
        return command

    def send(self, data: bytes, *, timeout_s: float) -> None:
        self.writes += 1
        assert self.may_send.wait(timeout_s)
        for command in wire.decode(data):
            self._sent.put(command)  # type: ignore[arg-type]  # sent_next looks

    def receive(self, *, timeout_s: float) -> bytes:
        try:
            return self.replies.get(timeout=timeout_s)
        except queue.Empty:
            return b""

    def fault(self) -> errors.Disconnected | None:
        return None

    def close(self) -> None:
        """Do nothing."""
        self.closes += 1


# Threads --------------------------------------------------------------------------------------------------


def test_waiting_fetch_does_not_delay_other_threads() -> None:
    fetching = threading.Event()
    answers: dict[str, wire.CommandId] = {}

    def script(_: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        match command:
            case wire.Fet():
                answers["fetch"] = command.cmd_id
                fetching.set()
                return []
            case wire.Pub():
                message = wire.Msg(qname="q", uid="u", error_count=0, msg="x", cmd_id=answers["fetch"])
                return [wire.Ok(uid="p", cmd_id=command.cmd_id), message]
            case _:
                return []

    uids: list[str] = []

    def fetch() -> None:
        message = client.fetch("q", wait=60)
        assert message is not None
        uids.append(message.uid)

    def publish() -> None:
        assert fetching.wait(DEADLINE_S)
        uids.append(client.publish("q", "x"))

    with scripted(script) as address, Client(address) as client, in_threads(fetch, publish):
        pass

    assert sorted(uids) == ["p", "u"]


def test_threads_get_their_own_answers() -> None:
    def script(_: int, command: wire.Command) -> wire.Reply:
        assert isinstance(command, wire.Pub)
        return wire.Ok(uid=f"uid of {command.message}", cmd_id=command.cmd_id)

    wrong: list[str] = []

    def publish(name: int, client: Client) -> None:
        for number in range(50):
            body = f"{name}-{number}"
            if client.publish("q", body) != f"uid of {body}":
                wrong.append(body)

    with (
        scripted(script) as address,
        Client(address) as client,
        in_threads(*[lambda name=name: publish(name, client) for name in range(8)]),
    ):
        pass

    assert not wrong


def test_answer_wakes_only_its_caller_and_the_next_server(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[WaitingCall] = []
    ring = WaitingCall.ring

    def counted(waiting: WaitingCall) -> None:
        rung.append(waiting)
        ring(waiting)

    monkeypatch.setattr(WaitingCall, "ring", counted)
    connection = DrivenConnection()
    caller = connection.caller()
    with in_threads(*[lambda: caller.call(requests.ping())] * 16):
        tickets = [connection.sent_next().cmd_id for _ in range(16)]
        for ticket in reversed(tickets):
            connection.replies.put(wire.encode([wire.Pong(cmd_id=ticket)]))

    # Each call is woken for its answer, and at most once to serve.
    assert len(rung) <= 2 * 16


def test_commands_asked_during_a_write_leave_in_one_write() -> None:
    connection = DrivenConnection()
    caller = connection.caller()
    connection.may_send.clear()
    with in_threads(*[lambda: caller.call(requests.ping())] * 8):
        until_s = time.monotonic() + DEADLINE_S
        while len(caller._waiting) < 8 and time.monotonic() < until_s:
            # Wait until all threads have asked.
            time.sleep(0)
        connection.may_send.set()
        for _ in range(8):
            connection.replies.put(wire.encode([wire.Pong(cmd_id=connection.sent_next().cmd_id)]))

    # HELLO, the first command, and the other seven together.
    assert connection.writes == 3


def test_lost_connection_is_replaced_for_all_threads() -> None:
    asked = threading.Barrier(2)

    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply] | None:
        if connection == 1:
            return None if isinstance(command, wire.Pub) and command.message == "last" else []
        return wire.Ok(uid="u", cmd_id=command.cmd_id) if isinstance(command, wire.Pub) else []

    uids: list[str] = []

    def publish(client: Client, body: str) -> None:
        asked.wait(DEADLINE_S)
        uids.append(client.publish("q", body))

    with (
        scripted(script) as address,
        Client(address) as client,
        in_threads(lambda: publish(client, "first"), lambda: publish(client, "last")),
    ):
        pass

    assert uids == ["u", "u"]


def test_hung_broker_is_found_while_another_thread_waits_longer() -> None:
    fetching = threading.Event()

    def script(_: int, command: wire.Command) -> list[wire.Reply]:
        if isinstance(command, wire.Fet):
            fetching.set()
        return []

    def fetch() -> None:
        with pytest.raises(errors.WakeqError):
            client.fetch("q", wait=60)

    def ping() -> None:
        assert fetching.wait(DEADLINE_S)
        with pytest.raises(errors.Disconnected, match="has not answered"):
            client.ping()
        client.close()

    with scripted(script) as address, Client(address, answer_timeout_s=0.2) as client, in_threads(fetch, ping):
        pass


def test_wait_ends_when_another_thread_closes_the_client(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    def script(_: int, command: wire.Command) -> list[wire.Reply]:
        if isinstance(command, wire.Fet):
            asked.set()
        return []

    def close_later() -> None:
        asked.wait(DEADLINE_S)
        client.close()

    with scripted(script) as address:
        client = Client(address)
        with in_threads(close_later), pytest.raises(errors.Disconnected, match="closed"):
            client.fetch("q", wait=60)

    assert not caplog.records


def test_client_closed_while_dialling_does_not_use_the_connection() -> None:
    driven, dialled = DrivenConnection(), 0
    driven.replies.put(wire.encode([wire.HelloReply(version="7.7")]))

    def dial(_: str) -> DrivenConnection:
        nonlocal dialled
        dialled += 1
        if dialled == 2:
            caller.close()
        return driven

    caller = Caller("127.0.0.1:1", Timeouts(DEADLINE_S, DEADLINE_S, DEADLINE_S), dial)
    driven.replies.put(b"no broker says this\n")
    driven.replies.put(wire.encode([wire.HelloReply(version="7.7"), wire.Pong(cmd_id=1)]))

    with pytest.raises(errors.Disconnected, match="this client was closed"):
        caller.call(requests.ping())

    assert (dialled, driven.closes) == (2, 2)


def test_closed_client_raises_closed() -> None:
    with scripted(pong) as address:
        client = Client(address)
        client.close()

        with pytest.raises(errors.Disconnected, match="closed"):
            client.ping()


# Interrupts and forks -------------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handle SIGINT as a program in the foreground does; one that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hypothesis measures each garbage collection in a callback, in which an interrupt would be lost.
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_client_is_usable_after_an_interrupt() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        if isinstance(command, wire.Fet) and connection == 1:
            os.kill(os.getpid(), signal.SIGINT)
            return []
        return wire.Pong(cmd_id=command.cmd_id) if isinstance(command, wire.Ping) else []

    with scripted(script) as address, Client(address) as client:
        with pytest.raises(KeyboardInterrupt):
            client.fetch("q", wait=60)

        # This uses a new connection; answers on the old one belong to no call.
        client.ping()


@pytest.mark.usefixtures("interruptible")
def test_interrupted_call_is_not_repeated() -> None:
    seen: list[tuple[int, type]] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        seen.append((connection, type(command)))
        if isinstance(command, wire.Pub):
            os.kill(os.getpid(), signal.SIGINT)
            return []
        return wire.Pong(cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        with pytest.raises(KeyboardInterrupt):
            client.publish("q", "x")
        client.ping()

    assert seen == [(1, wire.Pub), (2, wire.Ping)]


def test_message_received_before_the_interrupt_of_its_fetch_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = DrivenConnection()
    caller = driven.caller()
    wait_for_bell = Caller._wait_for_bell

    def interrupted(self: Caller, waiting: WaitingCall) -> None:
        wait_for_bell(self, waiting)
        if waiting.outcome is not None:
            raise KeyboardInterrupt

    def answer() -> None:
        fetch = driven.sent_next()
        message = wire.Msg(qname="q", uid="u", error_count=0, msg="x", lease="1-1", cmd_id=fetch.cmd_id)
        driven.replies.put(wire.encode([message]))

    def fetch() -> None:
        with pytest.raises(KeyboardInterrupt):
            caller.call(requests.fetch("q", 0, lambda queue, one: one))

    with in_threads(lambda: caller.call(requests.ping())):
        ping = driven.sent_next()
        monkeypatch.setattr(Caller, "_wait_for_bell", interrupted)
        with in_threads(fetch, answer):
            pass
        nack = driven.sent_next()
        driven.replies.put(wire.encode([wire.Pong(cmd_id=ping.cmd_id)]))

    assert isinstance(nack, wire.Nack)
    assert (nack.uid, nack.lease, nack.failed) == ("u", "1-1", False)


def test_forked_child_has_a_session_of_its_own() -> None:
    sessions: list[str | None] = []
    hello = threading.Lock()

    def script(connection: int, command: wire.Command) -> wire.Reply:
        with hello:
            sessions.append(f"{connection}")
        return wire.Pong(cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        client.ping()
        before = client._caller._session.session_id

        child = os.fork()
        if child == 0:
            client.ping()
            os._exit(0 if client._caller._session.session_id != before else 1)
        _, status = os.waitpid(child, 0)
        client.ping()

    assert os.waitstatus_to_exitcode(status) == 0
    # The child has a connection of its own, and that of the parent is still open.
    assert sessions == ["1", "2", "1"]


def test_fork_during_a_call_of_another_thread_leaves_the_child_a_usable_client() -> None:
    fetching = threading.Event()

    def script(_: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        if isinstance(command, wire.Fet):
            fetching.set()
            return []
        return wire.Pong(cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:

        def fetch() -> None:
            with pytest.raises(errors.Disconnected, match="closed"):
                client.fetch("q", wait=60)

        with in_threads(fetch):
            assert fetching.wait(DEADLINE_S)
            child = os.fork()
            if child == 0:
                signal.alarm(5)
                client.ping()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            client.close()

    assert os.waitstatus_to_exitcode(status) == 0
