"""Tests of AsyncClient (aio.py, aio_caller.py): calls and cancellations, against scripted peers."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from tests.helpers.brokers.scripted import delivered, pong, scripted, stored
from tests.helpers.clients.aio import DEADLINE_S, run
from wakeq import errors
from wakeq.client import route
from wakeq.client.aio import AsyncClient
from wakeq.client.aio_caller import AsyncConnection
from wakeq.client.session import UNDER_WAY_MAX
from wakeq.protocol.wire.worker import codec as wire


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "PAUSE_S_MIN", 0.0)


# Calls ----------------------------------------------------------------------------------------------------


def test_tasks_get_their_own_answers() -> None:
    async def work() -> list[str]:
        async with AsyncClient(address) as client:
            return await asyncio.gather(*(client.publish("q", str(number)) for number in range(100)))

    with scripted(stored) as address:
        assert run(work) == [f"uid of {number}" for number in range(100)]


def test_commands_of_one_turn_of_the_loop_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []

    def connection_made(connection: AsyncConnection, transport: Any) -> None:
        made(connection, transport)
        send = transport.write
        monkeypatch.setattr(transport, "write", lambda data: (writes.append(data), send(data)))

    async def work() -> None:
        async with AsyncClient(address) as client:
            await asyncio.gather(*(client.publish("q", "x") for _ in range(20)))

    made = AsyncConnection.connection_made
    monkeypatch.setattr(AsyncConnection, "connection_made", connection_made)
    with scripted(stored) as address:
        run(work)

    hello, publishes = writes
    assert (hello.count(b"\n"), publishes.count(b"\n")) == (1, 20)


def test_calls_beyond_the_limit_of_a_session_wait() -> None:
    async def work() -> int:
        async with AsyncClient(address) as client:
            uids = await asyncio.gather(*(client.publish("q", str(n)) for n in range(UNDER_WAY_MAX + 200)))
            return len(set(uids))

    with scripted(stored) as address:
        assert run(work) == UNDER_WAY_MAX + 200


def test_first_call_connects() -> None:
    async def work() -> str:
        client = AsyncClient(address)
        await client.ping()
        await client.close()
        return client.broker_version

    with scripted(pong) as address:
        assert run(work) == "7.7"


def test_refusal_is_raised_and_connection_stays_usable() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply:
        assert connection == 1
        if isinstance(command, wire.Ping):
            return wire.Pong(cmd_id=command.cmd_id)
        return wire.Nok(err="Q_NOT_FOUND", detail="no such queue", cmd_id=command.cmd_id)

    async def work() -> None:
        async with AsyncClient(address) as client:
            with pytest.raises(errors.QueueNotFound, match="no such queue"):
                await client.fetch("q")
            await client.ping()

    with scripted(script) as address:
        run(work)


def test_call_that_cannot_be_encoded_fails_alone() -> None:
    async def work() -> list[object]:
        async with AsyncClient(address) as client:
            bad: Any = {"trace": object()}
            calls = [client.publish("q", "1"), client.publish("q", "2", headers=bad), client.publish("q", "3")]
            return await asyncio.gather(*calls, return_exceptions=True)

    with scripted(stored) as address:
        first, second, third = run(work)

    assert (first, third) == ("uid of 1", "uid of 3")
    assert isinstance(second, errors.BadField)


def test_async_with_block_acknowledges_or_nacks() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> wire.Reply:
        seen.append(command)
        match command:
            case wire.Fet():
                return delivered(command)
            case wire.Ack():
                return wire.Okack(uid="u", qname="q", cmd_id=command.cmd_id)
            case _:
                return wire.Oknack(uid="u", qname="q", cmd_id=command.cmd_id)

    async def work() -> None:
        async with AsyncClient(address) as client:
            for error in (None, ValueError("no"), asyncio.CancelledError()):
                message = await client.fetch("q")
                assert message is not None
                with contextlib.suppress(ValueError, asyncio.CancelledError):
                    async with message:
                        if error is not None:
                            raise error

    with scripted(script) as address:
        run(work)

    ack, nack, release = seen[1::2]
    assert isinstance(ack, wire.Ack)
    assert isinstance(nack, wire.Nack)
    assert isinstance(release, wire.Nack)
    assert (nack.error, nack.delay, release.error, release.delay) == ("ValueError: no", None, None, 0)


# Cancellation -----------------------------------------------------------------------------------------------


def test_message_for_a_cancelled_fetch_is_released() -> None:
    fetches: list[wire.Command] = []
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        seen.append(command)
        match command:
            case wire.Fet():
                fetches.append(command)
                return []
            case wire.Ping() if fetches:
                return [delivered(fetches.pop()), wire.Pong(cmd_id=command.cmd_id)]
            case wire.Nack():
                return wire.Oknack(uid="u", qname="q")
            case _:
                return wire.Pong(cmd_id=command.cmd_id)

    async def work() -> None:
        async with AsyncClient(address) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.fetch("q", wait=60)
            await client.ping()
            await client.ping()

    with scripted(script) as address:
        run(work)

    nack = seen[3]
    assert isinstance(nack, wire.Nack)
    assert (nack.uid, nack.lease, nack.delay) == ("u", "1-1", 0)


def test_message_received_in_the_turn_of_the_cancellation_is_released() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> wire.Reply:
        seen.append(command)
        return delivered(command) if isinstance(command, wire.Fet) else pong(1, command)

    async def work() -> None:
        async with AsyncClient(address) as client:
            fetch = asyncio.create_task(client.fetch("q"))
            deliver = client._caller._deliver

            def deliver_and_cancel(events: Any) -> None:
                deliver(events)
                fetch.cancel()

            client._caller._deliver = deliver_and_cancel  # type: ignore[method-assign]
            with pytest.raises(asyncio.CancelledError):
                await fetch
            await client.ping()

    with scripted(script) as address:
        run(work)

    assert [type(command) for command in seen] == [wire.Fet, wire.Nack, wire.Ping]


def test_cancelled_call_without_a_connection_is_never_sent() -> None:
    seen: list[wire.Command] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        if connection == 1:
            return None
        seen.append(command)
        return pong(connection, command)

    async def work() -> None:
        async with AsyncClient(address) as client:
            calls = [asyncio.create_task(client.ping()), asyncio.create_task(client.fetch("q"))]
            await asyncio.sleep(0)
            calls[1].cancel()
            await asyncio.wait(calls)

    with scripted(script) as address:
        run(work)

    assert [type(command) for command in seen] == [wire.Ping]


def test_drain_waits_for_answers_but_not_for_waiting_fetches() -> None:
    first_is_answered = threading.Event()
    answered: list[wire.CommandId] = []

    def script(_: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        if not isinstance(command, wire.Pub):
            return []
        if answered:
            # The answers must arrive in two reads.
            assert first_is_answered.wait(DEADLINE_S)
        answered.append(command.cmd_id)
        return wire.Ok(uid="u", cmd_id=command.cmd_id)

    async def work() -> list[bool]:
        async with AsyncClient(address) as client:
            fetch = asyncio.create_task(client.fetch("q", wait=60))
            first, second = (asyncio.create_task(client.publish("q", "x")) for _ in range(2))
            first.add_done_callback(lambda _: first_is_answered.set())
            await asyncio.sleep(0)
            await client.drain()
            await asyncio.sleep(0)
            state = [first.done(), second.done(), fetch.done()]
            fetch.cancel()
            return state

    with scripted(script) as address:
        assert run(work) == [True, True, False]
