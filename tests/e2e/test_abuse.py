"""What strangers do to a broker: each of it costs little, is answered clearly, and is nobody else's loss.

The broker is a real process; while it is abused, an honest client must get its answers.
"""

import asyncio
import random
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.certificates import Authority
from tests.helpers.line_client import LineClient
from tests.helpers.mutated_sessions import SESSIONS, mutated, upgrade
from tests.helpers.started import eventually

MIB = 1024 * 1024
ANSWER_S_MAX = 2.0  # for an honest client while others do their worst, on a machine that others use too
FORGET_S_MAX = 30.0
OWN_FILES = 4  # that the broker may open meanwhile for itself: a segment, a snapshot, what the loop needs at first
SILENT = 5_000
MUTATED = 10_000
AT_ONCE = 64
SEED = 20_261_118
SESSION_BYTES_MAX = 2_048  # what one may leave behind, of memory that the allocator keeps for the next ones

pytestmark = pytest.mark.long


def rss_bytes(broker: BrokerProcess) -> int:
    """How much memory the broker holds."""
    pages = Path(f"/proc/{broker.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def open_files(broker: BrokerProcess) -> int:
    """How many files and sockets the broker has open."""
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


class Honest:
    """A client that does its work; `answered_in_s` is the longest that one answer took."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._client = LineClient(broker.worker_address)
        self._queue = f"honest-{random.randrange(10**9)}"
        self.longest_s = 0.0

    def works(self, times: int = 20) -> None:
        for _ in range(times):
            began_s = time.monotonic()
            assert self._client.ask("PUB", self._queue, message="x")["cmd"] == "ok"
            message = self._client.ask("FET", self._queue)
            assert self._client.ask("ACK", self._queue, uid=message["uid"])["cmd"] == "okack"
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        assert self.longest_s < ANSWER_S_MAX, f"an honest client waited for {self.longest_s:.2f} s"


@pytest.fixture
def honest(shared_broker: BrokerProcess) -> Iterator[Honest]:
    """Return an honest client, which works before the abuse and after it; the broker has not ended meanwhile."""
    client = Honest(shared_broker)
    client.works()
    yield client
    client.works()
    assert shared_broker.running, shared_broker.stderr
    assert "Traceback" not in shared_broker.stderr


def dial(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=20)


def is_shut_out(connection: socket.socket, timeout_s: float = 20.0) -> bool:
    """Whether the broker ends the connection in that time."""
    connection.settimeout(timeout_s)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


# --- many, and slow ----------------------------------------------------------------------------------------------


def test_five_thousand_silent_connections_cost_little_and_leave_nothing(
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


def test_one_more_than_may_connect_is_told_so_at_every_door(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker("--set", "connections_max=2")
    held = [connect(broker), connect(broker)]
    for client in held:
        client.ask("PING")

    refused = connect(broker).recv()
    assert (refused["cmd"], refused["err"]) == ("nok", "BUSY")
    with dial(broker.http_address) as http:
        http.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert http.recv(100).startswith(b"HTTP/1.1 503 ")
    with dial(broker.taskflux_address) as flux:
        assert is_shut_out(flux)

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


def test_who_never_comes_to_an_end_is_not_waited_for_at_any_door(shared_broker: BrokerProcess, honest: Honest) -> None:
    """By a byte a second, or by fragments of one message without end: all of them at the same time."""
    before_bytes = rss_bytes(shared_broker)
    beginnings = (
        (shared_broker.worker_address, b'{"cmd":"PUB","qname":"q","message":"'),
        (shared_broker.http_address, b"GET / HTTP/1.1\r\nX-Slow: "),
        (shared_broker.taskflux_address, b"\x41\x4e\x42"),
        (shared_broker.http_address, upgrade() + b"\x81\xfe\x10\x00mask"),
    )
    with ThreadPoolExecutor(len(beginnings) + 1) as pool:
        fragments = pool.submit(_seconds_of_fragments, shared_broker.http_address)
        listened_s = [*pool.map(_seconds_listened_to, *zip(*beginnings, strict=True)), fragments.result()]

    assert max(listened_s) < 15, f"it was listened to for too long: {listened_s}"
    assert rss_bytes(shared_broker) - before_bytes < 32 * MIB


def _seconds_listened_to(address: tuple[str, int], beginning: bytes) -> float:
    """How long the broker bears a peer that says a byte a second."""
    began_s = time.monotonic()
    with dial(address) as slow, suppress(OSError):
        slow.sendall(beginning)
        while time.monotonic() - began_s < 20:
            slow.sendall(b"x")
            if is_shut_out(slow, 1.0):
                break
    return time.monotonic() - began_s


def _seconds_of_fragments(address: tuple[str, int]) -> float:
    """How long the broker bears a message that has always one more fragment."""
    with dial(address) as endless:
        endless.sendall(upgrade())
        assert b" 101 " in endless.recv(4096)
        began_s, first = time.monotonic(), True
        payload = bytes(1000)
        endless.settimeout(0.5)
        while time.monotonic() - began_s < 20:
            head = bytes([0x01 if first else 0x00, 0xFE]) + struct.pack("!H", len(payload)) + bytes(4)
            first = False
            try:
                endless.sendall(head + payload + b"\x8a\x80" + bytes(4))  # and a pong, as a sign of life
                endless.recv(4096)
                break
            except TimeoutError:
                continue
            except OSError:
                break
        return time.monotonic() - began_s


def test_a_flood_of_pings_that_nobody_reads_the_answers_of_ends(shared_broker: BrokerProcess, honest: Honest) -> None:
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


def test_a_reader_that_never_reads_is_ended_and_its_answers_forgotten(
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


# --- wrong lengths, depths, names ------------------------------------------------------------------------------------


def test_lengths_beyond_everything_are_refused_before_they_are_read(
    shared_broker: BrokerProcess, honest: Honest
) -> None:
    before_bytes = rss_bytes(shared_broker)
    greeting = b"\x41\x4e\x42" + struct.pack(">iii", 1, 0, 0)
    enqueue = b"CE\x01q" + struct.pack(">q", 0)
    for size in (2**31 - 1, -1, -(2**31), 65 * MIB):
        with dial(shared_broker.taskflux_address) as flux:
            flux.sendall(greeting + enqueue + struct.pack(">i", size) + b"x" * 1000)
            assert is_shut_out(flux), size
    for size in (2**31, 2**63 - 1, 2**64 - 1):
        with dial(shared_broker.http_address) as frames:
            frames.sendall(upgrade() + b"\x81\xff" + struct.pack("!Q", size) + bytes(4) + b"x" * 1000)
            assert is_shut_out(frames), size
    with dial(shared_broker.worker_address) as line:
        with suppress(OSError):
            for _ in range(64):
                line.sendall(b"x" * MIB)
        assert is_shut_out(line)
    with dial(shared_broker.http_address) as http:
        http.sendall(b"POST /connect HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n")
        assert is_shut_out(http)
    assert rss_bytes(shared_broker) - before_bytes < 64 * MIB


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"cmd":"PUB","qname":"q","message":"x","headers":' + b'{"a":' * 100_000,
        b'{"cmd":"PUB","qname":"q","messages":[' + b"{}," * 300_000 + b"{}]}",
        b'{"cmd":"PUB","qname":"q","x":[' + b"{}," * 400_000 + b"{}]}",
        b'{"cmd":"PUB","qname":"q","message":' + b"9" * 100_000 + b"}",
        b'{"cmd":"PUB","qname":"q","priority":1e999999}',
        b'{"cmd":"\xff\xfe"}',
        b"\x00" * 1000,
    ],
    ids=["lists", "objects", "many messages", "many empty maps", "digits", "exponent", "not UTF-8", "zeros"],
)
def test_a_line_that_is_meant_to_hurt_is_one_refusal(
    shared_broker: BrokerProcess, honest: Honest, connect: Connect, line: bytes
) -> None:
    client = connect(shared_broker)
    began_s = time.monotonic()

    client.send_raw(line + b"\n")

    assert client.recv()["cmd"] == "nok"
    assert time.monotonic() - began_s < ANSWER_S_MAX
    assert client.ask("PING")["cmd"] == "pong"


@pytest.mark.parametrize("name", ["a\0b", "x" * 512, "a\nINFO wakeq: all is well", "‮txt.exe", "\x1b[2J"])
def test_a_name_that_is_meant_to_mislead_is_refused_and_not_in_the_log(
    shared_broker: BrokerProcess, honest: Honest, connect: Connect, name: str
) -> None:
    reply = connect(shared_broker).ask("PUB", name, message="x")

    assert (reply["cmd"], reply["err"]) == ("nok", "BAD_NAME")
    assert name not in reply["detail"]
    assert name not in shared_broker.stderr


def test_a_name_that_looks_like_a_path_is_a_name(
    shared_broker: BrokerProcess, honest: Honest, connect: Connect
) -> None:
    client = connect(shared_broker)
    before = set(shared_broker.data_dir.parent.rglob("*"))

    for name in ("..", "../../etc/passwd", "/etc/passwd", "."):
        assert client.ask("PUB", name, message="x")["cmd"] == "ok"
        assert client.ask("FET", name)["cmd"] == "msg"

    outside = {path for path in shared_broker.data_dir.parent.rglob("*") if shared_broker.data_dir not in path.parents}
    assert outside <= before | {shared_broker.data_dir}


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        HEAD + b"Origin: http://[\r\n\r\n",
        HEAD + b"Origin: http://x:99999999\r\n\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%zz%00%0d%0aINFO HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
    ids=["origin", "port", "gzip", "chunk size", "chunk end", "target", "path"],
)
def test_a_request_that_is_meant_to_hurt_is_one_refusal(
    shared_broker: BrokerProcess, honest: Honest, request_bytes: bytes
) -> None:
    with dial(shared_broker.http_address) as http:
        http.sendall(request_bytes)
        answer = http.recv(4096)

    assert not answer.startswith((b"HTTP/1.1 5", b"HTTP/1.0 5")), answer
    assert "ERROR" not in shared_broker.stderr


def test_what_a_handshake_asks_for_is_not_logged(shared_broker: BrokerProcess, honest: Honest) -> None:
    with dial(shared_broker.http_address) as frames:
        frames.sendall(upgrade()[:-2] + b"Sec-WebSocket-Protocol: secret-in-a-protocol\r\n\r\n")
        assert b" 101 " in frames.recv(4096)

    assert "secret-in-a-protocol" not in shared_broker.stderr


def test_bodies_of_requests_count_into_what_is_held_for_all(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "buffer_bytes_max=8388608")
    before_bytes = rss_bytes(broker)
    begun = [dial(broker.http_address) for _ in range(100)]
    for connection in begun:
        with suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + b"x" * (MIB - 1))

    assert b" 503 " in begun[-1].recv(4096)
    assert rss_bytes(broker) - before_bytes < 64 * MIB


# --- tokens and TLS -----------------------------------------------------------------------------------------------


def test_ten_thousand_guesses_are_refused_and_logged_in_a_few_lines(start_broker: StartBroker) -> None:
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


def test_who_does_not_say_who_he_is_is_shut_out_in_time(start_broker: StartBroker) -> None:
    broker = start_broker("--auth")
    upgraded = dial(broker.http_address)
    upgraded.sendall(upgrade())
    strangers = [dial(broker.worker_address), dial(broker.taskflux_address), dial(broker.http_address), upgraded]
    began_s = time.monotonic()

    assert all(is_shut_out(stranger, 15) for stranger in strangers)

    assert 4 < time.monotonic() - began_s < 12


def test_stalled_and_plain_handshakes_keep_nobody_out(start_broker: StartBroker, tmp_path: Path) -> None:
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


def test_ten_thousand_mutated_sessions_under_load_hurt_nobody(start_broker: StartBroker) -> None:
    broker = start_broker()
    draw = random.Random(SEED)
    addresses = {"worker": broker.worker_address, "taskflux": broker.taskflux_address, "http": broker.http_address}

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


def test_a_websocket_client_of_before_still_works(shared_broker: BrokerProcess, honest: Honest) -> None:
    async def talk() -> None:
        async with aiohttp.ClientSession() as session:
            url = "http://{}:{}/connect".format(*shared_broker.http_address)
            ws = await session.ws_connect(url)
            await ws.send_str('{"cmd":"PING"}')
            assert await ws.receive_json() == {"cmd": "pong"}
            await ws.close()

    asyncio.run(talk())
