"""Proves that threads may share a blocking Client, and that it survives interrupts and forks (caller.py)."""

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.scripted_peer import scripted
from wakeq import Client, errors
from wakeq.client.caller import Caller, WaitingCall
from wakeq.client.core import backoff, requests
from wakeq.client.core.timeouts import Timeouts
from wakeq.protocol.wire.worker import codec as wire

DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.0)


def pong(_: int, command: wire.Command) -> wire.Reply:
    return wire.Pong(cmd_id=command.cmd_id)


@contextmanager
def in_thread(*jobs: object) -> Iterator[list[threading.Thread]]:
    """Run each job in a thread of its own; all must end."""
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:  # they are daemons: one that hangs fails the test and keeps nothing else
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a call never ended"


class HeldConnection:
    """A connection by hand: the test sees what was sent, says what comes, and can hold a write."""

    def __init__(self) -> None:
        self.writes = self.closes = 0
        self.may_send = threading.Event()
        self.may_send.set()
        self.replies: queue.Queue[bytes] = queue.Queue()
        self._sent: queue.Queue[wire.Command] = queue.Queue()

    def caller(self) -> Caller:
        """Who talks over it."""
        self.replies.put(wire.encode([wire.HelloReply(version="7.7")]))
        caller = Caller("127.0.0.1:1", Timeouts(DEADLINE_S, DEADLINE_S, 0.0), lambda _: self)
        assert isinstance(self.sent_next(), wire.Hello)
        return caller

    def sent_next(self) -> wire.Command:
        """The next command that was written."""
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
        """Nothing to let go of."""
        self.closes += 1


# Threads --------------------------------------------------------------------------------------------------


def test_a_fetch_that_waits_keeps_no_other_thread_waiting() -> None:
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

    with scripted(script) as address, Client(address) as client, in_thread(fetch, publish):
        pass

    assert sorted(uids) == ["p", "u"]


def test_many_threads_get_each_its_own_answer() -> None:
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
        in_thread(*[lambda name=name: publish(name, client) for name in range(8)]),
    ):
        pass

    assert not wrong


def test_an_answer_wakes_nobody_but_its_asker_and_who_serves_next(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[WaitingCall] = []
    ring = WaitingCall.ring

    def counted(waiting: WaitingCall) -> None:
        rung.append(waiting)
        ring(waiting)

    monkeypatch.setattr(WaitingCall, "ring", counted)
    connection = HeldConnection()
    caller = connection.caller()
    with in_thread(*[lambda: caller.call(requests.ping())] * 16):
        tickets = [connection.sent_next().cmd_id for _ in range(16)]
        for ticket in reversed(tickets):
            connection.replies.put(wire.encode([wire.Pong(cmd_id=ticket)]))

    assert len(rung) <= 2 * 16  # for its answer, and at most once to take over


def test_what_threads_ask_while_one_writes_leaves_in_one_write() -> None:
    connection = HeldConnection()
    caller = connection.caller()
    connection.may_send.clear()
    with in_thread(*[lambda: caller.call(requests.ping())] * 8):
        until_s = time.monotonic() + DEADLINE_S
        while len(caller._waiting) < 8 and time.monotonic() < until_s:
            time.sleep(0)  # until all have asked
        connection.may_send.set()
        for _ in range(8):
            connection.replies.put(wire.encode([wire.Pong(cmd_id=connection.sent_next().cmd_id)]))

    assert connection.writes == 3  # HELLO, the first one, and the other seven


def test_a_lost_connection_is_made_again_for_all_threads() -> None:
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
        in_thread(lambda: publish(client, "first"), lambda: publish(client, "last")),
    ):
        pass

    assert uids == ["u", "u"]


def test_a_broker_that_hangs_is_found_beside_a_thread_that_waits_for_longer() -> None:
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

    with scripted(script) as address, Client(address, answer_timeout_s=0.2) as client, in_thread(fetch, ping):
        pass


def test_a_wait_ends_when_another_thread_closes_the_client(caplog: pytest.LogCaptureFixture) -> None:
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
        with in_thread(close_later), pytest.raises(errors.Disconnected, match="closed"):
            client.fetch("q", wait=60)

    assert not caplog.records


def test_a_client_that_is_closed_while_it_dials_does_not_use_the_connection() -> None:
    held, dialled = HeldConnection(), 0
    held.replies.put(wire.encode([wire.HelloReply(version="7.7")]))

    def dial(_: str) -> HeldConnection:
        nonlocal dialled
        dialled += 1
        if dialled == 2:
            caller.close()
        return held

    caller = Caller("127.0.0.1:1", Timeouts(DEADLINE_S, DEADLINE_S, DEADLINE_S), dial)
    held.replies.put(b"no broker says this\n")
    held.replies.put(wire.encode([wire.HelloReply(version="7.7"), wire.Pong(cmd_id=1)]))

    with pytest.raises(errors.Disconnected, match="this client was closed"):
        caller.call(requests.ping())

    assert (dialled, held.closes) == (2, 2)


def test_a_closed_client_says_so() -> None:
    with scripted(pong) as address:
        client = Client(address)
        client.close()

        with pytest.raises(errors.Disconnected, match="closed"):
            client.ping()


# Interrupts and forks -------------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Be as a program in the foreground: one that a shell began in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_client_is_of_use_after_an_interrupt() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        if isinstance(command, wire.Fet) and connection == 1:
            os.kill(os.getpid(), signal.SIGINT)
            return []
        return wire.Pong(cmd_id=command.cmd_id) if isinstance(command, wire.Ping) else []

    with scripted(script) as address, Client(address) as client:
        with pytest.raises(KeyboardInterrupt):
            client.fetch("q", wait=60)

        client.ping()  # on a new connection: what would have come on the old one is nobody's


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_call_leaves_nothing_to_repeat() -> None:
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


def test_a_message_that_came_before_the_interrupt_of_its_fetch_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldConnection()
    caller = held.caller()
    wait_for_bell = Caller._wait_for_bell

    def interrupted(self: Caller, waiting: WaitingCall) -> None:
        wait_for_bell(self, waiting)
        if waiting.outcome is not None:
            raise KeyboardInterrupt

    def answer() -> None:
        fetch = held.sent_next()
        message = wire.Msg(qname="q", uid="u", error_count=0, msg="x", lease="1-1", cmd_id=fetch.cmd_id)
        held.replies.put(wire.encode([message]))

    def fetch() -> None:
        with pytest.raises(KeyboardInterrupt):
            caller.call(requests.fetch("q", 0, lambda queue, one: one))

    with in_thread(lambda: caller.call(requests.ping())):
        ping = held.sent_next()
        monkeypatch.setattr(Caller, "_wait_for_bell", interrupted)
        with in_thread(fetch, answer):
            pass
        nack = held.sent_next()
        held.replies.put(wire.encode([wire.Pong(cmd_id=ping.cmd_id)]))

    assert isinstance(nack, wire.Nack)
    assert (nack.uid, nack.lease, nack.failed) == ("u", "1-1", False)


def test_a_forked_child_has_a_conversation_of_its_own() -> None:
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
    assert sessions == ["1", "2", "1"]  # the child's own connection, and the parent's still there


def test_a_fork_under_a_call_of_another_thread_leaves_the_child_a_free_client() -> None:
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

        with in_thread(fetch):
            assert fetching.wait(DEADLINE_S)
            child = os.fork()
            if child == 0:
                signal.alarm(5)
                client.ping()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            client.close()

    assert os.waitstatus_to_exitcode(status) == 0
