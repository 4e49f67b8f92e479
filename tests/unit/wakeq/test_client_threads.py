"""Proves that threads may share a blocking Client, and that it survives interrupts and forks (caller.py)."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.scripted_peer import scripted
from wakeq import Client, errors
from wakeq.client import patience
from wakeq.protocol.wire import worker as wire

DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S_MIN", 0.0)


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


def test_a_closed_client_says_so() -> None:
    with scripted(pong) as address:
        client = Client(address)
        client.close()

        with pytest.raises(errors.Disconnected, match="closed"):
            client.ping()


# Interrupts and forks -------------------------------------------------------------------------------------


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
