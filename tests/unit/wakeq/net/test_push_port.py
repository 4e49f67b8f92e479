"""The port of a controller, with real PULL sockets: who is there, who gets what, and who is no component."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
import uvloop
import zmq

from tests.helpers.doors.mutated_sessions import PING, READY
from tests.helpers.network.ports import free_port
from wakeq.actors.sessions.door import Admission
from wakeq.net import push_port as module
from wakeq.net.push_port import PushPort
from wakeq.protocol.errors import CannotListen
from wakeq.protocol.wire.zmtp import GREETING

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
Run = Callable[[Callable[["Place"], Awaitable[None]]], None]


class Place:
    """A port, what it said of its components, and a context for theirs."""

    def __init__(self, port: int = 0) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.there: list[int] = []
        self.admission = Admission()
        self.port = PushPort("127.0.0.1", port, self._changed, self.admission)

    def _changed(self, components: Sequence[int]) -> None:
        self.there = list(components)

    def pull(self) -> Any:
        made = self.context.socket(zmq.PULL)
        made.connect(f"tcp://{self.port.address}")
        return made

    async def component(self) -> tuple[int, Any]:
        """Return one that is connected, and its number."""
        before = set(self.there)
        made = self.pull()
        await until(lambda: bool(set(self.there) - before))
        (number,) = set(self.there) - before
        return number, made

    def knock(self, said: bytes = b"") -> socket.socket:
        """Connect as somebody who is no component."""
        host, _, port = self.port.address.rpartition(":")
        made = socket.create_connection((host, int(port)))
        made.sendall(said)
        return made


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_in_loop(test: Callable[[Place], Awaitable[None]]) -> None:
        async def limited() -> None:
            place = Place()
            try:
                await asyncio.wait_for(test(place), 20)
            finally:
                place.port.close()
                await asyncio.to_thread(place.context.destroy, linger=0)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    return run_in_loop


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.002)


async def taken(pull: Any) -> Any:
    await until(lambda: bool(pull.poll(0)))
    return pull.recv_multipart()


@pytest.mark.parametrize("size", [0, 255, 256, 1 << 20])
def test_task_goes_only_to_the_named_component(run: Run, size: int) -> None:
    async def test(place: Place) -> None:
        one, one_pull = await place.component()
        other, other_pull = await place.component()

        assert place.port.can_take(other)
        assert place.port.send(other, [b"tag", b"x" * size])
        assert await taken(other_pull) == [b"tag", b"x" * size]
        assert place.port.send(one, [b"tag", b"one"])

        assert await taken(one_pull) == [b"tag", b"one"]
        assert not other_pull.poll(0)
        assert place.port.components == 2

    run(test)


def test_closed_component_is_removed_at_once_and_gets_nothing(run: Run) -> None:
    async def test(place: Place) -> None:
        one, one_pull = await place.component()
        other, _ = await place.component()

        one_pull.close(linger=0)
        await until(lambda: place.there == [other])

        assert not place.port.can_take(one)
        assert not place.port.send(one, [b"tag", b"task"])
        assert place.port.send(other, [b"tag", b"task"])

    run(test)


def test_components_that_connect_together_are_distinguished(run: Run) -> None:
    async def test(place: Place) -> None:
        pulls = [place.pull() for _ in range(20)]
        await until(lambda: len(place.there) == 20)

        for number in place.there:
            assert place.port.send(number, [b"tag", b"%d" % number])

        got = [await taken(pull) for pull in pulls]
        assert sorted(int(task) for _, task in got) == sorted(place.there)

    run(test)


def test_component_that_does_not_read_gets_nothing_until_it_reads(run: Run) -> None:
    async def test(place: Place) -> None:
        number, pull = await place.component()
        pull.close(linger=0)
        await until(lambda: not place.there)
        slow = place.context.socket(zmq.PULL)
        slow.rcvhwm = 1
        slow.connect(f"tcp://{place.port.address}")
        await until(lambda: bool(place.there))
        (number,) = place.there

        sent = 0
        while place.port.send(number, [b"tag", bytes(10_000)]):
            sent += 1
            await asyncio.sleep(0)
        transport = place.port._open[number]._transport
        assert transport is not None
        assert transport.get_write_buffer_size() <= 10_100  # the others are not here any more
        place.there.clear()
        for _ in range(sent):
            await taken(slow)

        await until(lambda: place.there == [number])
        assert place.port.send(number, [b"tag", b"one more"])

    run(test)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", GREETING + b"\x00\x01x"])
def test_connection_of_no_component_is_closed_and_logged(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S_MAX", 60)

    async def test(place: Place) -> None:
        number, pull = await place.component()
        with place.knock(said) as stranger:
            stranger.settimeout(10)
            await asyncio.to_thread(read_all, stranger)

        assert place.there == [number]
        assert place.port.send(number, [b"tag", b"task"])
        assert await taken(pull) == [b"tag", b"task"]

    run(test)
    assert "is not a component for 127.0.0.1" in caplog.text


def read_all(stranger: socket.socket) -> None:
    try:
        while stranger.recv(1000):
            pass
    except ConnectionResetError:
        pass


def test_silent_connection_is_closed_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S_MAX", 0.1)

    async def test(place: Place) -> None:
        number, pull = await place.component()
        for _ in range(2):  # the second one goes when the component would have gone, too
            with place.knock() as stranger:
                stranger.settimeout(10)
                await asyncio.to_thread(read_all, stranger)
        assert place.there == [number]
        assert place.port.send(number, [b"tag", b"task"])
        assert await taken(pull) == [b"tag", b"task"]

    run(test)


def test_component_counts_as_a_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(place: Place) -> None:
        place.admission.connections_max = 2
        place.admission.enter()  # at another door
        number, pull = await place.component()
        assert place.admission.connections == 2

        with place.knock() as one_more:
            one_more.settimeout(10)
            await asyncio.to_thread(read_all, one_more)
        assert place.there == [number]
        pull.close(linger=0)
        await until(lambda: place.admission.connections == 1)

        again, _ = await place.component()
        assert again != number

    run(test)
    assert "there are 2 connections already" in caplog.text


def test_components_of_one_address_are_limited_as_connections(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.actors.sessions.door.is_this_machine", lambda address: False)

    async def test(place: Place) -> None:
        place.admission.per_address_max = 1
        number, _ = await place.component()

        with place.knock() as one_more:
            one_more.settimeout(10)
            await asyncio.to_thread(read_all, one_more)

        assert place.there == [number]

    run(test)


def test_unread_tasks_count_as_held_and_the_component_beyond_the_bound_is_dropped(run: Run) -> None:
    async def test(place: Place) -> None:
        peers = [place.knock(GREETING + READY) for _ in range(2)]
        await until(lambda: len(place.there) == 2)
        first, second = place.there
        fill(place, first)
        held_bytes = place.admission.held_bytes
        assert 0 < held_bytes <= 1 << 20

        place.admission.held_bytes_max = held_bytes + 1
        fill(place, second)
        await until(lambda: place.there == [first])
        assert place.admission.held_bytes == held_bytes
        peers[0].close()
        await until(lambda: not place.there)

        assert (place.admission.held_bytes, place.admission.connections) == (0, 0)
        peers[1].close()

    run(test)


def fill(place: Place, number: int) -> None:
    """Send until it can take no more."""
    while place.port.send(number, [bytes(1 << 19)]):
        pass


def test_component_on_a_lease_is_dropped_when_its_kernel_acknowledges_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keepalive does not help while something is on the way: TCP would go on trying for a quarter of an hour."""
    monkeypatch.setattr(module, "SILENT_S_MAX", 0.2)

    async def test(place: Place) -> None:
        port = PushPort("127.0.0.1", 0, place._changed, place.admission, on_lease=True)
        host, _, number = port.address.rpartition(":")
        with socket.create_connection((host, int(number))) as peer:
            peer.sendall(GREETING + READY)
            await until(lambda: bool(place.there))
            while port.send(place.there[0], [bytes(1 << 19)]):
                pass

            await until(lambda: not place.there)
        port.close()

    run(test)


def test_component_that_does_not_read_is_not_read(run: Run) -> None:
    """Else the answers to its PINGs would fill the memory, and it needs nothing but the port."""

    async def test(place: Place) -> None:
        with place.knock(GREETING + READY) as peer:
            peer.setblocking(False)
            await until(lambda: bool(place.there))
            (number,) = place.there
            transport = cast(asyncio.Transport, place.port._open[number]._transport)
            while place.port.send(number, [bytes(100_000)]):
                await asyncio.sleep(0)
            assert not place.port.can_take(number)
            waiting = transport.get_write_buffer_size()

            for _ in range(100):
                peer.send(PING)
                await asyncio.sleep(0)

            assert transport.get_write_buffer_size() == waiting
            said = bytearray()
            while not said.endswith(b"PONG"):
                with suppress(BlockingIOError):
                    said += peer.recv(1 << 20)
                await asyncio.sleep(0)

    run(test)


def test_component_beyond_the_bound_waits_until_another_has_gone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPONENTS_MAX", 1)

    async def test(place: Place) -> None:
        first, first_pull = await place.component()
        with place.knock():
            for _ in range(10):  # turns of the loop, each of which looks for who has come
                await asyncio.sleep(0)
            assert [one.id for one in place.port._connections] == [first]

            first_pull.close(linger=0)
            await until(lambda: [one.id for one in place.port._connections] == [first + 1])

    run(test)


def test_closed_port_is_free_at_once_and_drops_its_components(run: Run) -> None:
    async def test(place: Place) -> None:
        number, _ = await place.component()
        port = int(place.port.address.rpartition(":")[2])

        place.port.close()

        assert not place.port.send(number, [b"tag", b"task"])
        next_one = PushPort("127.0.0.1", port, place._changed, place.admission)
        await until(lambda: next_one.components == 1)  # it has come again by itself
        next_one.close()

    run(test)


@pytest.mark.parametrize(("host", "address"), [("localhost", "127.0.0.1"), ("*", "0.0.0.0")])
def test_port_listens_at_the_same_addresses_as_libzmq(host: str, address: str) -> None:
    async def test() -> str:
        port = PushPort(host, 0, lambda _: None, Admission())
        port.close()
        return port.address

    assert asyncio.run(test()).rpartition(":")[0] == address


def test_port_in_use_and_foreign_host_are_named() -> None:
    async def test(host: str, port: int) -> None:
        PushPort(host, port, lambda _: None, Admission())

    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(CannotListen, match="is another scheduler there"):
        asyncio.run(test("127.0.0.1", taken.getsockname()[1]))
    for host in ("192.0.2.1", "::1"):
        with pytest.raises(CannotListen, match=f"cannot listen on tcp://{host}.*name an IPv4 address of this machine"):
            asyncio.run(test(host, free_port()))
