"""ZeroMQ sockets on the loop: everything is read, and nobody is waited for."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import zmq

from tests.helpers.loops.both import LOOPS
from wakeq.actors.runtime import Rounds
from wakeq.net import zmq_ports as module
from wakeq.net.zmq_ports import TAKEN_MAX, TOGETHER_BYTES_MAX, TOGETHER_TRANSFERS_MAX, PubPort, PullPort
from wakeq.protocol.errors import CannotListen
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX

Run = Callable[[Callable[["zmq.Context[Any]", "zmq.Context[Any]"], Awaitable[None]]], None]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Return a function that runs a test with our context and that of its components."""
    ours, theirs = zmq.Context(), zmq.Context()

    def run_in_loop(test: Callable[[Any, Any], Awaitable[None]]) -> None:
        async def limited() -> None:
            await asyncio.wait_for(test(ours, theirs), 20)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    yield run_in_loop
    theirs.destroy(linger=0)
    ours.destroy(linger=0)


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.002)


def test_port_with_more_than_was_read_at_once_waits_for_its_turn(run: Run) -> None:
    async def test(ours: Any, theirs: Any) -> None:
        taken: list[Any] = []
        rounds = Rounds(lambda: None)

        def take(transfers: list[Any]) -> None:
            taken.extend(transfers)
            port.passed_on()

        port = PullPort(ours, "127.0.0.1", 0, take, rounds)
        components = [connected(theirs, zmq.PUSH, port.address) for _ in range(3)]
        for number in range(1000):
            for component in components:
                component.send_multipart([b"tag", b"%d" % number])
        most = 0
        while len(taken) < 3000:
            before, turn = len(taken), bool(rounds.waiting)
            if turn:
                rounds.serve()
                most = max(most, len(taken) - before)
            await asyncio.sleep(0.002)

        assert 0 < most <= TOGETHER_TRANSFERS_MAX
        port.close()

    run(test)


def connected(context: Any, kind: int, address: str) -> Any:
    made = context.socket(kind)
    made.connect(f"tcp://{address}")
    return made


def test_port_reads_any_number_of_messages(run: Run) -> None:
    async def test(ours: Any, theirs: Any) -> None:
        taken: list[Any] = []
        together: list[int] = []

        def take(transfers: list[Any]) -> None:
            taken.extend(transfers)
            together.append(len(transfers))
            port.passed_on()

        port = PullPort(ours, "127.0.0.1", 0, take)
        components = [connected(theirs, zmq.PUSH, port.address) for _ in range(3)]
        for number in range(1000):
            for component in components:
                component.send_multipart([b"tag", b"%d" % number])

        await until(lambda: len(taken) == 3000)
        components[0].send_multipart([b"one", b"more"])
        await until(lambda: taken[-1] == [b"one", b"more"])

        assert max(together) <= TOGETHER_TRANSFERS_MAX
        port.close()

    run(test)


def test_large_messages_are_read_a_few_in_a_turn(run: Run) -> None:
    async def test(ours: Any, theirs: Any) -> None:
        together: list[int] = []

        def take(transfers: list[Any]) -> None:
            together.append(len(transfers))
            port.passed_on()

        port = PullPort(ours, "127.0.0.1", 0, take)
        component = connected(theirs, zmq.PUSH, port.address)
        for _ in range(40):
            component.send_multipart([b"tag", bytes(1 << 20)])
        while not port._socket.poll(10):  # and the loop does not run meanwhile
            pass

        await until(lambda: sum(together) == 40)

        assert max(together) <= TOGETHER_BYTES_MAX >> 20
        port.close()

    run(test)


def test_port_reads_nothing_while_much_is_not_passed_on(run: Run) -> None:
    """So components wait, and nothing piles up here."""

    async def test(ours: Any, theirs: Any) -> None:
        taken: list[bytes] = []
        port = PullPort(ours, "127.0.0.1", 0, lambda transfers: taken.extend(frames[0] for frames in transfers))
        component = connected(theirs, zmq.PUSH, port.address)
        for number in range(TAKEN_MAX):
            component.send_multipart([b"%d" % number])
            await until(lambda: len(taken) > number)  # noqa: B023

        component.send_multipart([b"more"])
        await until(lambda: port._is_deaf)  # else the loop would go round and round
        assert len(taken) == TAKEN_MAX
        port.passed_on()
        await until(lambda: taken[-1] == b"more")
        component.send_multipart([b"still more"])
        await until(lambda: port._is_deaf)
        port.begin_again()
        await until(lambda: taken[-1] == b"still more")

        assert len(taken) == TAKEN_MAX + 2
        port.close()
        port.passed_on()

    run(test)


def test_unidentified_component_is_closed_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module._OPTIONS, zmq.HANDSHAKE_IVL, 50)

    async def test(ours: Any, theirs: Any) -> None:
        port = PubPort(ours, "127.0.0.1", 0)
        host, _, number = port.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(number))

        await reader.read()

        writer.close()
        port.close()

    run(test)


@pytest.mark.parametrize("fails", ["socket", "bind"])
def test_failed_port_gives_a_reason(run: Run, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def no_files(*_: Any) -> None:
        raise zmq.ZMQError(errno.EMFILE)

    async def test(ours: Any, theirs: Any) -> None:
        monkeypatch.setattr(zmq.Context if fails == "socket" else zmq.Socket, fails, no_files)
        with pytest.raises(CannotListen, match=r"cannot listen on tcp://127\.0\.0\.1:\*: Too many open files"):
            PullPort(ours, "127.0.0.1", 0, lambda _: None)

    run(test)


def test_received_messages_are_taken_at_a_stop(run: Run) -> None:
    """Whoever sent it believes that it was delivered."""

    async def test(ours: Any, theirs: Any) -> None:
        taken: list[Any] = []
        port = PullPort(ours, "127.0.0.1", 0, taken.extend)
        component = connected(theirs, zmq.PUSH, port.address)
        component.send_multipart([b"tag", b"first"])
        await until(lambda: bool(taken))

        for number in range(100):
            component.send_multipart([b"tag", b"%d" % number])
        while not port._socket.poll(10):  # and the loop does not run meanwhile
            pass
        port.stop_reading()
        seen = len(taken)

        assert seen > 1
        assert [data for _, data in taken[1:]] == [b"%d" % number for number in range(seen - 1)]
        port.close()

    run(test)


def test_message_beyond_the_limit_ends_only_its_connection(run: Run) -> None:
    async def test(ours: Any, theirs: Any) -> None:
        taken: list[Any] = []

        def take(transfers: list[Any]) -> None:
            taken.extend(transfers)
            port.passed_on()

        port = PullPort(ours, "127.0.0.1", 0, take)
        bad, good = connected(theirs, zmq.PUSH, port.address), connected(theirs, zmq.PUSH, port.address)

        bad.send_multipart([b"tag", bytes(MESSAGE_BYTES_MAX + 1)])
        good.send_multipart([b"tag", bytes(MESSAGE_BYTES_MAX)])
        await until(lambda: bool(taken))

        assert [len(message) for _, message in taken] == [MESSAGE_BYTES_MAX]
        port.close()

    run(test)


def test_subscriber_that_does_not_read_misses_messages_and_delays_no_other(run: Run) -> None:
    async def test(ours: Any, theirs: Any) -> None:
        port = PubPort(ours, "127.0.0.1", 0)
        quick, slow = (connected(theirs, zmq.SUB, port.address) for _ in range(2))
        for sub in (quick, slow):
            sub.subscribe(b"")
            while not sub.poll(10):
                port.publish([(b"probe", b"")])
            while sub.poll(50):
                sub.recv_multipart()

        heard = 0
        for number in range(20_000):
            port.publish([(b"tag", b"%d" % number)])
            if number % 100 == 99:
                while heard <= number and quick.poll(1_000):
                    quick.recv_multipart()
                    heard += 1

        assert heard == 20_000
        port.close()
        port.publish([(b"closed", b"")])

    run(test)
