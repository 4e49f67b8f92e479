"""Abusive clients (many, slow, guessing, malformed) cost the broker little, are closed in time and harm no others.

The broker is a real process; while it is abused, an honest client must get its answers.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.honest import MIB, Honest, dial, is_shut_out, open_files, rss_bytes
from tests.helpers.clients.lines import LineClient
from tests.helpers.doors.mutated_sessions import PING, READY, SESSIONS, mutated, upgrade
from tests.helpers.monique.component import config_json
from tests.helpers.network.certificates import Authority
from tests.helpers.network.ports import free_port
from tests.helpers.programs.started import eventually
from wakeq.protocol.wire.zmtp import GREETING

FORGET_S_MAX = 30.0
OWN_FILES = 4  # that the broker may open meanwhile for itself: a segment, a snapshot, what the loop needs at first
SILENT = 5_000
MUTATED = 10_000
AT_ONCE = 64
SEED = 20_261_118
ROUTE = "monique.routes=sum_it=sums"
SESSION_BYTES_MAX = 2_048  # what one may leave behind, of memory that the allocator keeps for the next ones

pytestmark = pytest.mark.long


# --- many, and slow ----------------------------------------------------------------------------------------------


def test_silent_connections_by_thousands_cost_little_and_leave_nothing(
    shared_broker: BrokerProcess, honest: Honest
) -> None:
    before_bytes, before_files = rss_bytes(shared_broker), open_files(shared_broker)
    silent = [dial(shared_broker.worker_address) for _ in range(SILENT)]
    honest.works()
    held_bytes = rss_bytes(shared_broker) - before_bytes
    assert held_bytes / SILENT < 16 * 1024, f"{held_bytes / SILENT:.0f} bytes for each"

    for connection in silent:
        connection.close()

    eventually(lambda: open_files(shared_broker) <= before_files + OWN_FILES, "they are forgotten", FORGET_S_MAX)


def test_connection_above_the_limit_is_refused_in_words_at_every_door(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    port = free_port()
    config = config_json(tmp_path / "config.json", sum_it=port)
    broker = start_broker("--set", "connections_max=2", "-f", str(config))
    held = [connect(broker), connect(broker)]
    for client in held:
        client.ask("PING")

    refused = connect(broker).recv()
    assert (refused["cmd"], refused["err"]) == ("nok", "BUSY")
    probe = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"  # for which there is room beyond
    for request, status in ((upgrade(), b"503"), (probe, b"200")):
        with dial(broker.http_address) as http:
            http.sendall(request)
            assert http.recv(100).startswith(b"HTTP/1.1 " + status)
    for address in (broker.taskflux_address, ("127.0.0.1", port)):
        with dial(address) as silent:
            assert is_shut_out(silent, 2.0)

    held[0].close()
    eventually(lambda: _gets_in(broker), "there is room again")


def _gets_in(broker: BrokerProcess) -> bool:
    client = LineClient(broker.worker_address)
    try:
        return bool(client.ask("PING")["cmd"] == "pong")
    except (ConnectionError, OSError):
        return False
    finally:
        client.close()


def test_client_that_never_finishes_a_message_is_closed_at_every_door(
    shared_broker: BrokerProcess, honest: Honest
) -> None:
    """Some clients send a byte a second, others fragments of one message without end, all at the same time."""
    before_bytes = rss_bytes(shared_broker)
    beginnings = (
        (shared_broker.worker_address, b'{"cmd":"PUB","qname":"q","message":"'),
        (shared_broker.http_address, b"GET / HTTP/1.1\r\nX-Slow: "),
        (shared_broker.taskflux_address, b"\x41\x4e\x42"),
        (shared_broker.http_address, upgrade() + b"\x81\xfe\x10\x00mask"),
    )
    with ThreadPoolExecutor(len(beginnings) + 1) as pool:
        fragments = pool.submit(_ends_fragments, shared_broker.http_address)
        ends = [*pool.map(_ends_slow_bytes, *zip(*beginnings, strict=True)), fragments.result()]

    assert all(ends), f"a door went on listening: {ends}"
    assert rss_bytes(shared_broker) - before_bytes < 32 * MIB


def _ends_slow_bytes(address: tuple[str, int], beginning: bytes) -> bool:
    """Whether the broker ends a connection that sends a byte a second."""
    with dial(address) as slow:
        try:
            slow.sendall(beginning)
            for _ in range(60):
                slow.sendall(b"x")
                if is_shut_out(slow, 1.0):
                    return True
        except OSError:
            return True
    return False


def _ends_fragments(address: tuple[str, int]) -> bool:
    """Whether the broker ends a connection whose message always goes on."""
    with dial(address) as endless:
        endless.sendall(upgrade())
        assert b" 101 " in endless.recv(4096)
        payload = bytes(1000)
        endless.settimeout(0.5)
        for number in range(120):
            head = bytes([0x00 if number else 0x01, 0xFE]) + struct.pack("!H", len(payload)) + bytes(4)
            try:
                endless.sendall(head + payload + b"\x8a\x80" + bytes(4))  # and a pong, as a sign of life
                endless.recv(4096)
                return True
            except TimeoutError:
                continue
            except OSError:
                return True
    return False


def test_connection_that_floods_with_pings_and_reads_no_answer_is_closed(
    shared_broker: BrokerProcess, honest: Honest
) -> None:
    before_bytes = rss_bytes(shared_broker)
    ping = b"\x89\xfd" + bytes(4) + bytes(125)
    with dial(shared_broker.http_address) as flood:
        flood.sendall(upgrade())
        flood.settimeout(2.0)
        with suppress(OSError):
            for _ in range(1000):
                flood.sendall(ping * 1000)
            pytest.fail("131 MB of pings were taken without an end")
        honest.works()
    assert rss_bytes(shared_broker) - before_bytes < 64 * MIB


def test_component_that_only_sends_pings_is_closed(start_broker: StartBroker, tmp_path: Path, connect: Connect) -> None:
    port = free_port()
    broker = start_broker("-f", str(config_json(tmp_path / "config.json", sum_it=port)), "--set", ROUTE)
    before_bytes = rss_bytes(broker)
    with dial(("127.0.0.1", port)) as flood:
        flood.sendall(GREETING + READY)
        with suppress(ConnectionError):
            for _ in range(100):
                flood.sendall(PING * 100_000)
        assert is_shut_out(flood)
        assert connect(broker).ask("PING")["cmd"] == "pong"
        assert rss_bytes(broker) - before_bytes < 8 * MIB


def test_client_that_never_reads_is_closed_and_its_answers_are_freed(
    shared_broker: BrokerProcess, honest: Honest, connect: Connect
) -> None:
    connect(shared_broker).ask("PUB", "large", message="x" * 500_000)
    before_bytes, before_files = rss_bytes(shared_broker), open_files(shared_broker)
    with dial(shared_broker.worker_address) as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.settimeout(5.0)
        with suppress(OSError):
            for _ in range(500):
                greedy.sendall(b'{"cmd":"PEEK","qname":"large","state":"any"}\n')
        honest.works()
        # Seen from the broker: the end of the stream stands behind what the greedy one does not read.
        eventually(lambda: open_files(shared_broker) <= before_files, "it is served no more", FORGET_S_MAX)
    eventually(lambda: rss_bytes(shared_broker) - before_bytes < 64 * MIB, "memory returns", FORGET_S_MAX)


# --- tokens and TLS -----------------------------------------------------------------------------------------------


def test_token_guesses_by_thousands_are_refused_and_take_few_log_lines(start_broker: StartBroker) -> None:
    broker = start_broker("--auth")
    guesses = [f"wakeq_guess-{number}" for number in range(MUTATED)]

    async def guess(token: str, limit: asyncio.Semaphore) -> bytes:
        async with limit:
            reader, writer = await asyncio.open_connection(*broker.worker_address)
            writer.write(b'{"cmd":"HELLO","token":"%s"}\n' % token.encode())
            answer = await reader.read()
            writer.close()
            return answer

    async def all_of_them() -> set[bytes]:
        limit = asyncio.Semaphore(AT_ONCE)
        return set(await asyncio.gather(*(guess(token, limit) for token in guesses)))

    (answer,) = asyncio.run(all_of_them())

    assert b'"err":"UNAUTHORIZED"' in answer
    lines = [line for line in broker.stderr.splitlines() if "was refused" in line]
    assert 0 < len(lines) < 200
    assert "wakeq_guess" not in broker.stderr


def test_client_that_does_not_log_in_is_closed_in_time(start_broker: StartBroker) -> None:
    broker = start_broker("--auth")
    upgraded = dial(broker.http_address)
    upgraded.sendall(upgrade())
    strangers = [dial(broker.worker_address), dial(broker.taskflux_address), dial(broker.http_address), upgraded]

    # When exactly is proved with clocks that a test moves, at each door.
    assert all(is_shut_out(stranger, 60) for stranger in strangers)


def test_tls_handshakes_that_stall_or_are_plain_text_keep_nobody_out(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("broker")
    broker = start_broker("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    before_files = open_files(broker) + OWN_FILES
    doors = (broker.worker_address, broker.http_address, broker.taskflux_address)
    stalled = [dial(door) for door in doors for _ in range(100)]
    for connection in stalled[::2]:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
    plain = [dial(door) for door in doors]
    for connection in plain:
        connection.sendall(b'{"cmd":"PING"}\n' + b"GET / HTTP/1.1\r\n\r\n")

    from wakeq import Client

    with Client("{}:{}".format(*broker.worker_address), tls=str(authority.ca.cert)) as client:
        client.ping()

    assert all(is_shut_out(connection) for connection in plain + stalled)
    eventually(lambda: open_files(broker) <= before_files, "they are forgotten", FORGET_S_MAX)
    assert "Traceback" not in broker.stderr


# --- anything -----------------------------------------------------------------------------------------------------


def test_mutated_sessions_by_thousands_harm_no_other_client(start_broker: StartBroker, tmp_path: Path) -> None:
    port = free_port()
    broker = start_broker("-f", str(config_json(tmp_path / "config.json", sum_it=port)), "--set", ROUTE)
    draw = random.Random(SEED)
    addresses = {"worker": broker.worker_address, "taskflux": broker.taskflux_address, "http": broker.http_address}
    addresses["controller"] = ("127.0.0.1", port)

    async def speak(door: str, data: bytes, limit: asyncio.Semaphore) -> None:
        async with limit:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(*addresses[door])
                writer.write(data)
                if writer.can_write_eof():
                    writer.write_eof()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(65_536), 0.5)
                writer.close()

    async def rounds(count: int, work: Callable[[], Awaitable[None]]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)
        kinds = SESSIONS * (count // len(SESSIONS) + 1)
        sessions = [(session.door, mutated(session.said, draw)) for session in kinds]
        busy = asyncio.ensure_future(work())
        for start in range(0, count, 500):
            await asyncio.gather(*(speak(*session, limit) for session in sessions[start : start + 500]))
        busy.cancel()
        with suppress(asyncio.CancelledError):
            await busy

    async def honest_work() -> None:
        client = Honest(broker)
        while True:
            await asyncio.to_thread(client.works, 5)

    asyncio.run(rounds(MUTATED // 2, honest_work))
    before_bytes, before_files = rss_bytes(broker), open_files(broker)
    asyncio.run(rounds(MUTATED, honest_work))

    assert broker.running, broker.stderr
    assert "Traceback" not in broker.stderr, f"seed {SEED}: {broker.stderr}"
    eventually(lambda: open_files(broker) <= before_files + OWN_FILES, "the connections are forgotten", FORGET_S_MAX)
    eventually(
        lambda: rss_bytes(broker) < before_bytes + MUTATED * SESSION_BYTES_MAX,
        f"next to nothing is left of a session: of {before_bytes} bytes it is {rss_bytes(broker)}",
        FORGET_S_MAX,
    )
    Honest(broker).works()
    assert broker.terminate() == 0


def test_websocket_client_of_an_older_release_still_works(shared_broker: BrokerProcess, honest: Honest) -> None:
    async def talk() -> None:
        async with aiohttp.ClientSession() as session:
            url = f"http://{shared_broker.addresses['http']}/connect"
            ws = await session.ws_connect(url)
            await ws.send_str('{"cmd":"PING"}')
            assert await ws.receive_json() == {"cmd": "pong"}
            await ws.close()

    asyncio.run(talk())
