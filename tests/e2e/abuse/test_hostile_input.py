"""Malicious input (wrong lengths, depths and names) gets a clear answer and harms no other client.

The broker is a real process; while it is abused, an honest client must get its answers.
"""

import struct
from contextlib import suppress

import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.honest import ANSWER_CPU_S_MAX, MIB, Honest, cpu_s, dial, is_shut_out, rss_bytes
from tests.helpers.doors.mutated_sessions import upgrade


def test_length_above_the_limit_is_refused_before_the_body_is_read(
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
def test_malicious_line_gets_one_refusal(
    shared_broker: BrokerProcess, honest: Honest, connect: Connect, line: bytes
) -> None:
    client = connect(shared_broker)
    client.ask("PING")
    before_s = cpu_s(shared_broker)

    client.send_raw(line + b"\n")

    assert client.recv()["cmd"] == "nok"
    assert cpu_s(shared_broker) - before_s < ANSWER_CPU_S_MAX
    assert client.ask("PING")["cmd"] == "pong"


@pytest.mark.parametrize("name", ["a\0b", "x" * 512, "a\nINFO wakeq: all is well", "‮txt.exe", "\x1b[2J"])
def test_misleading_queue_name_is_refused_and_not_logged(
    shared_broker: BrokerProcess, honest: Honest, connect: Connect, name: str
) -> None:
    reply = connect(shared_broker).ask("PUB", name, message="x")

    assert (reply["cmd"], reply["err"]) == ("nok", "BAD_NAME")
    assert name not in reply["detail"]
    assert name not in shared_broker.stderr


def test_queue_name_that_looks_like_a_path_is_only_a_name(
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
def test_malicious_http_request_gets_one_refusal(
    shared_broker: BrokerProcess, honest: Honest, request_bytes: bytes
) -> None:
    with dial(shared_broker.http_address) as http:
        http.sendall(request_bytes)
        answer = http.recv(4096)

    assert not answer.startswith((b"HTTP/1.1 5", b"HTTP/1.0 5")), answer
    assert "ERROR" not in shared_broker.stderr


def test_handshake_text_of_a_client_is_not_logged(shared_broker: BrokerProcess, honest: Honest) -> None:
    with dial(shared_broker.http_address) as frames:
        frames.sendall(upgrade()[:-2] + b"Sec-WebSocket-Protocol: secret-in-a-protocol\r\n\r\n")
        assert b" 101 " in frames.recv(4096)

    assert "secret-in-a-protocol" not in shared_broker.stderr


def test_http_bodies_count_towards_the_memory_limit_of_the_node(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "buffer_bytes_max=8388608")
    before_bytes = rss_bytes(broker)
    begun = [dial(broker.http_address) for _ in range(100)]
    for connection in begun:
        with suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + b"x" * (MIB - 1))

    assert b" 503 " in begun[-1].recv(4096)
    assert rss_bytes(broker) - before_bytes < 64 * MIB
