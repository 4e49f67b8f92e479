"""Floods: bytes that keep a broker busy at the cost of its other clients, and a sender for them.

FLOODS by name --> Flood: a door, a greeting, and the bytes       pour(flood, broker) --> sent, until the block ends
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.honest import dial
from tests.helpers.doors.mutated_sessions import upgrade
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import AuthorizationRequest, BootstrapRequest
from wakeq.protocol.wire.taskflux.dialects import SPEC

PING = b'{"cmd":"PING"}\n'
GREETING = encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0)], SPEC)
WORKER, TASKFLUX, HTTP = "worker", "taskflux", "http"
WAIT_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Flood:
    """Bytes for a door; of the greeting the answer is awaited."""

    door: str
    greeting: bytes
    data: bytes


def _frames(payload: bytes, count: int, opcode: int = 0x81) -> bytes:
    return (struct.pack("!BB", opcode, 0x80 | len(payload)) + bytes(4) + payload) * count


FLOODS = {
    "lines of a stranger": Flood(WORKER, b"", b"x\n" * 1_000_000),
    "lines of a client": Flood(WORKER, PING, b"x\n" * 1_000_000),
    "pings": Flood(WORKER, b"", PING * 400_000),
    "line of maps": Flood(WORKER, PING, b"[" + b"{}," * 1_000_000 + b"{}]\n"),
    "unknown field": Flood(WORKER, PING, b'{"cmd":"PUB","qname":"q","x":[' + b"{}," * 1_000_000 + b"{}]}\n"),
    "unknown fields": Flood(WORKER, b"", b"{" + b"".join(b'"%x":1,' % n for n in range(280_000)) + b'"cmd":"PING"}\n'),
    "batch of nothing": Flood(WORKER, b"", b'{"cmd":"PUB","qname":"q","messages":[' + b"{}," * 1_000_000 + b"{}]}\n"),
    "batches": Flood(WORKER, b"", (b'{"cmd":"PUB","qname":"q","messages":[' + b'"",' * 9_999 + b'""]}\n') * 10),
    "looks and subscriptions": Flood(WORKER, PING, b'{"cmd":"FET","qname":"q"}\n{"cmd":"SUB","qname":"q"}\n' * 50_000),
    "acks": Flood(TASKFLUX, GREETING, b"Q" * 4_000_000),
    "frames": Flood(HTTP, upgrade() + _frames(PING.strip(), 1), _frames(PING.strip(), 200_000)),
    "empty frames": Flood(HTTP, upgrade() + _frames(PING.strip(), 1), _frames(b"", 400_000)),
    "control frames": Flood(HTTP, upgrade(), _frames(b"", 200_000, 0x89)),
    "no messagepack": Flood(HTTP, upgrade("/monique"), _frames(b"x", 200_000, 0x82)),
}


@contextmanager
def pour(flood: Flood, broker: BrokerProcess) -> Iterator[threading.Event]:
    """Send a flood and read its answers; the event is set when the broker has taken it, or ended the connection."""
    address = {WORKER: broker.worker_address, TASKFLUX: broker.taskflux_address, HTTP: broker.http_address}[flood.door]
    done = threading.Event()
    with dial(address) as connection:
        connection.settimeout(WAIT_S_MAX)
        if flood.greeting:
            connection.sendall(flood.greeting)
            assert connection.recv(65_536)
        sender = threading.Thread(target=_send, args=(connection, flood.data), daemon=True)
        reader = threading.Thread(target=_read_to_the_end, args=(connection, done), daemon=True)
        for thread in (reader, sender):
            thread.start()
        yield done
        assert done.wait(WAIT_S_MAX), "the broker neither took it nor ended the connection"
        sender.join(WAIT_S_MAX)


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _read_to_the_end(connection: socket.socket, done: threading.Event) -> None:
    with suppress(OSError):
        while connection.recv(1 << 20):
            pass
    done.set()
