"""Tests of AsyncClient (aio_caller.py): lost, silent and closed connections, against scripted peers."""

import asyncio
import math
import socket
import threading
from functools import partial

import pytest

from tests.helpers.brokers.scripted import delivered, pong, scripted, stored
from tests.helpers.clients.aio import DEADLINE_S, Heard, run
from wakeq import Client, errors
from wakeq.client import route
from wakeq.client.aio import AsyncClient
from wakeq.protocol.wire.worker import codec as wire


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "PAUSE_S_MIN", 0.0)


# Connections ----------------------------------------------------------------------------------------------


def test_publish_without_answer_is_repeated_with_its_number() -> None:
    seen: list[wire.Command] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        seen.append(command)
        return stored(connection, command) if connection == 2 else None

    async def work() -> str:
        async with AsyncClient(address) as client:
            return await client.publish("q", "x")

    with scripted(script) as address:
        assert run(work) == "uid of x"

    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_unreachable_broker_is_raised_by_connect_and_by_the_first_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    async def work() -> None:
        client = AsyncClient(address)
        with pytest.raises(errors.BrokerUnreachable, match=address):
            await client.connect()
        with pytest.raises(errors.BrokerUnreachable, match=address):
            await client.publish("q", "x")

    run(work)


def test_broker_that_stays_away_fails_all_calls() -> None:
    def script(_: int, command: wire.Command) -> None:
        return None

    async def work() -> list[BaseException | None]:
        async with AsyncClient(address, reconnect_for_s=0) as client:
            return await asyncio.gather(*(client.ping() for _ in range(3)), return_exceptions=True)

    with scripted(script) as address:
        outcomes = run(work)

    assert all(isinstance(outcome, errors.Disconnected) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 3


def test_lost_connection_is_replaced_without_a_call_and_subscriptions_are_restated() -> None:
    seen: list[tuple[int, type]] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply] | None:
        seen.append((connection, type(command)))
        match command:
            case wire.Sub():
                return wire.Oksub(qname="q", cmd_id=command.cmd_id)
            case wire.Islp() if connection == 1:
                return None
            case _:
                return [wire.Okslp(qname="q", cmd_id=command.cmd_id), wire.Awk(qname="q")]

    async def work() -> list[str]:
        received = Heard()
        async with AsyncClient(address, reconnect_for_s=math.inf, listener=received) as client:
            await client.subscribe("q")
            with pytest.raises(errors.Disconnected, match="ISLP"):
                await client.sleep("q")
            await received.until(3)
            await client.sleep("q")
            await received.until(4)
        return received.news

    with scripted(script) as address:
        news = run(work)

    # Nothing is reported after close.
    assert news == ["connected", "disconnected", "connected", "awoken q"]
    assert seen == [(1, wire.Sub), (1, wire.Islp), (2, wire.Sub), (2, wire.Islp)]


def test_half_closed_peer_ends_the_connection_once() -> None:
    may_read = threading.Event()
    mistakes: list[str] = []

    def talk(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        # No further connection may wait for a greeting.
        listening.close()
        with connection:
            connection.recv(4096)
            connection.sendall(wire.encode([wire.HelloReply(version="7.7")]))
            connection.recv(1)
            # A broker that refuses an unfinished line does the same.
            connection.shutdown(socket.SHUT_WR)
            may_read.wait(DEADLINE_S)
            while connection.recv(1 << 20):
                pass

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context["message"]))
        client = AsyncClient(address, reconnect_for_s=0)
        await client.connect()
        assert client._caller._connection is not None
        transport = client._caller._connection.transport
        asked = asyncio.create_task(client.publish("q", "x" * (16 << 20)))
        while not transport.is_closing():
            await asyncio.sleep(0)
        may_read.set()
        with pytest.raises(errors.WakeqError):
            await asked
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        threading.Thread(target=talk, args=(listening,), daemon=True).start()
        run(work)

    assert mistakes == []


def test_error_for_peer_that_closes_before_greeting_mentions_tls() -> None:
    async def converse() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            address = "{}:{}".format(*server.sockets[0].getsockname())
            asynchronous, blocking = AsyncClient(address), partial(Client, address)
            for connect in (asynchronous.connect, partial(asyncio.to_thread, blocking)):
                with pytest.raises(errors.Disconnected, match=r"before it greeted.*TLS"):
                    await connect()

    asyncio.run(converse())


def test_connection_that_breaks_at_its_greeting_is_replaced_once() -> None:
    greetings: list[int] = []

    class Breaking(Heard):
        def connected(self) -> None:
            super().connected()
            if len(self.news) == 1 and (connection := client._caller._connection):
                connection.transport.abort()

    async def work() -> None:
        nonlocal client
        client = AsyncClient(address, listener=Breaking())
        await client.connect()
        await client.ping()
        await client.close()

    def script(connection: int, command: wire.Command) -> wire.Reply:
        greetings.append(connection)
        return pong(connection, command)

    client: AsyncClient
    with scripted(script) as address:
        run(work)

    assert greetings == [2]


def test_redirect_to_the_leader_is_followed() -> None:
    async def work() -> None:
        async with AsyncClient(follower) as client:
            await client.create_queue("q")
            assert client.address == leader

    def leads(_: int, command: wire.Command) -> wire.Reply:
        return wire.Okcreate(qname="q", cmd_id=command.cmd_id)

    with scripted(leads) as leader:

        def follows(_: int, command: wire.Command) -> wire.Reply:
            return wire.Nok(err="NOT_LEADER", leader=leader, cmd_id=command.cmd_id)

        with scripted(follows) as follower:
            run(work)


def test_hung_broker_fails_overdue_calls_and_is_left() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply | list[wire.Reply]:
        if isinstance(command, wire.Fet) and connection > 1:
            return delivered(command)
        return []

    async def work() -> tuple[object, ...]:
        async with AsyncClient(address, answer_timeout_s=0.05) as client:
            return tuple(
                await asyncio.gather(client.publish("q", "x"), client.fetch("q", wait=60), return_exceptions=True)
            )

    with scripted(script) as address:
        published, fetched = run(work)

    assert isinstance(published, errors.Disconnected)
    assert "has not answered" in str(published)
    assert getattr(fetched, "uid", None) == "u"


@pytest.mark.parametrize("greets", [True, False])
def test_silent_node_is_left_for_the_next_one_without_an_error(monkeypatch: pytest.MonkeyPatch, greets: bool) -> None:
    monkeypatch.setattr("wakeq.client.aio_caller.SILENCE_LIMIT_S", 0.05)

    async def work() -> list[str]:
        async with AsyncClient(f"{hangs},{works}") as client:
            return [await client.publish("q", "x"), client.address]

    def answers(_: int, command: wire.Command) -> wire.Reply:
        return wire.Ok(uid="u", cmd_id=command.cmd_id)

    with scripted(lambda *_: [], greets=greets) as hangs, scripted(answers) as works:
        assert run(work) == ["u", works]


def test_silent_connection_is_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.client.session.PING_AFTER_S", 0.02)
    heard_twice = asyncio.Event()
    pings: list[int] = []

    def script(connection: int, command: wire.Command) -> wire.Reply:
        pings.append(connection)
        if len(pings) == 2:
            loop.call_soon_threadsafe(heard_twice.set)
        return pong(connection, command)

    async def work() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with AsyncClient(address):
            await heard_twice.wait()

    loop: asyncio.AbstractEventLoop
    with scripted(script) as address:
        run(work)

    assert set(pings) == {1}


def test_peer_that_never_greets_is_reported() -> None:
    async def work() -> None:
        client = AsyncClient(f"127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=0.05)
        with pytest.raises(errors.Disconnected, match="is it a wakeq worker port"):
            await client.connect()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        run(work)


def test_peer_with_another_protocol_is_reported() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        await writer.drain()
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        with pytest.raises(errors.Disconnected, match=r"127\.0\.0\.1:\d+ does not speak .* is this the HTTP port"):
            await AsyncClient(f"{host}:{port}").connect()
        server.close()

    run(work)


def test_cancelled_close_has_closed_the_connection() -> None:
    greeted = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(wire.encode([wire.HelloReply(version="7.7")]))
            greeted.wait(DEADLINE_S)

    async def work() -> None:
        client = AsyncClient(f"127.0.0.1:{listener.getsockname()[1]}")
        await client.connect()
        connection = client._caller._connection
        assert connection is not None
        publish = asyncio.create_task(client.publish("q", bytes(32 << 20)))
        while not connection.transport.get_write_buffer_size():
            await asyncio.sleep(0)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)

        closing.cancel()

        await asyncio.wait([closing])
        await connection.ended
        assert isinstance(publish.exception(), errors.Disconnected)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            run(work)
        finally:
            greeted.set()
            thread.join()


def test_unexpected_error_while_connecting_reaches_waiting_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> tuple[str, int]:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("wakeq.client.aio_caller.parse_address", fail)

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        client = AsyncClient("127.0.0.1:1")
        for wait in (client.connect, client.ping):
            with pytest.raises(errors.Disconnected, match="no such luck"):
                await wait()

    reported: list[Exception] = []
    run(work)
    # The loop hears of a bug, too.
    assert {type(error) for error in reported} == {RuntimeError}


def test_socket_detects_a_dead_peer_in_about_eleven_seconds() -> None:
    async def work() -> tuple[int, ...]:
        async with AsyncClient(address) as client:
            connection = client._caller._connection
            assert connection is not None
            option = connection.transport.get_extra_info("socket").getsockopt
            names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            return tuple(option(socket.IPPROTO_TCP, getattr(socket, name)) for name in names)

    with scripted(pong) as address:
        assert run(work) == (5, 2, 3, 11_000)


# Closing -----------------------------------------------------------------------------------------------------


def test_close_fails_every_call() -> None:
    async def work() -> None:
        client = AsyncClient(address)
        await client.connect()
        fetch = asyncio.create_task(client.fetch("q", wait=60))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(errors.Disconnected, match="closed"):
            await fetch
        with pytest.raises(errors.Disconnected, match="closed"):
            await client.ping()
        await client.close()

    with scripted(lambda _connection, _command: []) as address:
        run(work)


def test_close_ends_the_wait_for_a_broker() -> None:
    def script(connection: int, command: wire.Command) -> None:
        return None

    async def work() -> None:
        received = Heard()
        client = AsyncClient(address, reconnect_for_s=math.inf, listener=received)
        await client.connect()
        ping = asyncio.create_task(client.ping())
        await received.until(2)
        await client.close()
        with pytest.raises(errors.Disconnected, match="closed"):
            await ping
        # No task is left behind.
        assert len(asyncio.all_tasks()) == 1

    with scripted(script) as address:
        run(work)


def test_last_command_is_sent_before_the_connection_is_closed() -> None:
    seen: list[wire.Command] = []
    arrived = threading.Event()

    def script(_: int, command: wire.Command) -> list[wire.Reply]:
        seen.append(command)
        arrived.set()
        return []

    async def work() -> None:
        client = AsyncClient(address)
        await client.connect()
        publish = asyncio.create_task(client.publish("q", "x" * 1_000_000))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(errors.Disconnected):
            await publish

    with scripted(script) as address:
        run(work)
        assert arrived.wait(DEADLINE_S)

    (pub,) = seen
    assert isinstance(pub, wire.Pub)
    assert len(pub.message or "") == 1_000_000


def test_client_on_a_second_loop_is_refused() -> None:
    async def first() -> None:
        await client.ping()

    async def second() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await client.ping()

    with scripted(pong) as address:
        client = AsyncClient(address)
        run(first)
        run(second)
