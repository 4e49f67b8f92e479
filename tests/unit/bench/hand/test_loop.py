"""The loop by hand runs callbacks as other loops do, and carries bytes between the two ends of a connection."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bench.hand.loop import End, HandLoop


class Echo(asyncio.Protocol):
    """Sends back what it receives, and keeps it."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.transport.write(b"<" + data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class Silent(Echo):
    """Only keeps what it receives."""

    def data_received(self, data: bytes) -> None:
        self.received += data


@pytest.fixture
def loop() -> Iterator[HandLoop]:
    """A loop that never waits: time passes when the loop has nothing else to do, and nobody looks at it."""
    with HandLoop(lambda seconds: None).running() as running:
        yield running


async def listening(loop: HandLoop, make: Any) -> int:
    bound = socket.create_server(("127.0.0.1", 0))
    await loop.create_server(make, sock=bound)
    return int(bound.getsockname()[1])


def test_callback_of_a_callback_runs_in_the_next_round(loop: HandLoop) -> None:
    ran: list[str] = []
    loop.call_soon(lambda: (ran.append("first"), loop.call_soon(ran.append, "later")))
    loop.call_soon(ran.append, "second")

    loop.run_once()
    after_one_round = list(ran)
    loop.settle()

    assert after_one_round == ["first", "second"]
    assert ran == ["first", "second", "later"]


def test_cancelled_callback_does_not_run(loop: HandLoop) -> None:
    ran: list[str] = []
    loop.call_soon(ran.append, "soon").cancel()
    loop.call_later(-1, ran.append, "timer").cancel()

    loop.settle()

    assert ran == []


def test_timers_that_are_due_run_in_the_order_of_their_moments(loop: HandLoop) -> None:
    ran: list[str] = []
    loop.call_later(-1, ran.append, "late")
    loop.call_later(-2, ran.append, "early")
    loop.call_later(3600, ran.append, "not due")

    loop.settle()

    assert ran == ["early", "late"]


def test_waiting_loop_advances_time_to_the_next_timer_that_counts() -> None:
    passed: list[float] = []
    loop = HandLoop(passed.append)
    loop.call_later(10, lambda: None).cancel()
    loop.call_later(20, lambda: None)

    loop.wait()

    assert passed == [pytest.approx(20, abs=1)]


def test_waiting_loop_goes_on_when_another_thread_calls() -> None:
    loop, ran = HandLoop(), list[str]()
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(ran.append, "called"))

    thread.start()
    loop.wait()
    loop.settle()
    thread.join()

    assert ran == ["called"]


def test_failure_of_a_task_nobody_awaits_is_raised_by_its_round(loop: HandLoop) -> None:
    loop.call_exception_handler({"message": "it failed", "exception": KeyError("lost")})

    with pytest.raises(KeyError, match="lost"):
        loop.run_once()


def test_end_keeps_what_a_door_writes_until_it_is_taken(loop: HandLoop) -> None:
    port = loop.run_until_complete(listening(loop, Echo))
    end = loop.connect(port)

    end.give(b"a")
    end.give(b"b")

    assert end.take() == b"<a<b"
    assert end.take() == b""


def test_bytes_between_two_doors_fly_until_they_are_delivered(loop: HandLoop) -> None:
    port = loop.run_until_complete(listening(loop, Echo))
    transport, client = loop.run_until_complete(loop.create_connection(Silent, "127.0.0.1", port))

    transport.write(b"a")
    before = client.received
    loop.deliver()

    assert before == b""
    assert client.received == b"<a"


def test_end_that_has_to_wait_gets_nothing_until_it_lands(loop: HandLoop) -> None:
    port = loop.run_until_complete(listening(loop, Echo))
    transport, _ = loop.run_until_complete(loop.create_connection(Silent, "127.0.0.1", port))
    server: End = transport.other
    transport.write(b"a")
    transport.write(b"b")

    loop.deliver(but=server)
    before = server.protocol.received
    loop.land(server)

    assert before == b""
    assert server.protocol.received == b"ab"
    assert [data for _, data in loop.flying] == [b"<ab"]


def test_closed_connection_is_reported_once_at_both_doors(loop: HandLoop) -> None:
    port = loop.run_until_complete(listening(loop, Echo))
    transport, client = loop.run_until_complete(loop.create_connection(Silent, "127.0.0.1", port))

    transport.close()
    transport.other.close()
    loop.settle()

    assert (client.lost, transport.other.protocol.lost) == (True, True)
    assert transport.is_closing()


def test_port_that_nobody_has_refuses_a_connection(loop: HandLoop) -> None:
    with pytest.raises(ConnectionRefusedError):
        loop.run_until_complete(loop.create_connection(Silent, "127.0.0.1", 1))
