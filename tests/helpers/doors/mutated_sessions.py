"""Sessions of every door, and copies of them with changed bytes, which a node must survive.

    SESSIONS, a random source --> mutated --> bytes for a socket

Each session is right as it stands, and says something to all parts of its protocol.
"""

import random
import struct
from typing import NamedTuple

import msgpack

from wakeq.protocol.wire.worker.blocks import frame, pack
from wakeq.protocol.wire.zmtp import GREETING

READY = b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PULL"
PING = b"\x04\x07\x04PING\0\0"
JSON_TYPE = "Content-Type: application/json\r\n"


class Session(NamedTuple):
    """What a client says in one connection, and at which door."""

    door: str
    said: bytes


def upgrade(path: str = "/connect") -> bytes:
    """A request for a WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def masked(kind: int, payload: bytes) -> bytes:
    """A whole frame of a client, whose mask changes nothing."""
    assert len(payload) < 126, "a short one"
    return bytes([0x80 | kind, 0x80 | len(payload)]) + bytes(4) + payload


def request(method: str, target: str, body: str = "") -> bytes:
    """A request of an operator."""
    length = f"{JSON_TYPE}Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} /api/v1{target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n{body}".encode()


WORKER = (
    b'{"cmd":"HELLO","session":"s"}\n{"cmd":"SUB","qname":"m"}\n{"cmd":"PUB","qname":"m","message":"x","n":1}\n'
    b'{"cmd":"PUB","qname":"m","messages":["a",{"message":"b","headers":{"k":"v"}}],"id":"i"}\n'
    b'{"cmd":"FET","qname":"m","count":10}\n{"cmd":"ACK","qname":"m","uid":"0000003_00000001"}\n'
    b'{"cmd":"NACK","qname":"m","uid":"0000003_00000002","delay":1}\n{"cmd":"ISLP","qname":"m"}\n'
    b'{"cmd":"CREATE","qname":"n","max_size":10}\n{"cmd":"LIST"}\n{"cmd":"PEEK","qname":"m"}\n{"cmd":"PURGE","qname":"m"}\n'
)
BLOCKS = (
    frame(
        b'{"cmd":"PUBB","qname":"m","rows":3,"columns":["body","priority"]}',
        pack([("body", [b"a", b"bb", b""]), ("priority", [1, -2, 3])]),
    )
    + b'\n{"cmd":"STAGE","qname":"m","source":"s","epoch":1,"count":10,"slices":2}\n'
    + b'{"cmd":"SLICE","qname":"m","source":"s","epoch":1,"slice":0,"raw":true}\n'
    + b'{"cmd":"RENEW","qname":"m","source":"s"}\n'
    + b'{"cmd":"SLICE","qname":"m","source":"s","epoch":1,"slice":1,"reader":"r","batch":2,"run":"u"}\n'
    + b'{"cmd":"STASH","qname":"m","stash":"t","messages":["x"],"writer":"w","epoch":2}\n'
    + b'{"cmd":"UNSTASH","qname":"m","stashes":[["t",1]],"writer":"w","epoch":2,"reader":"r","run":"u","id":"i"}\n'
    + b'{"cmd":"RELEASE","qname":"m","source":"s"}\n'
    + b'{"cmd":"UNSTASH","qname":"m","stashes":[],"writer":"j","drop":true}\n'
    + b'{"cmd":"SETTLE","qname":"m","source":"s","epoch":1}\n{"cmd":"PEEKB","qname":"m"}\n{"cmd":"FETB","qname":"m"}\n'
)
TASKFLUX = (
    b"\x41\x4e\x42" + struct.pack(">iii", 1, 0, 0) + b"CQ\x01t" + struct.pack(">iii?", 1, -1, -1, False)
    + b"CE\x01t" + struct.pack(">qi", 5, 3) + b"abcQ" + b"CC\x01t" + b"CD\x01t" + struct.pack(">I", 0)
    + b"QCLCR\x01tM"
)  # fmt: skip
FRAMES = upgrade() + masked(1, b'{"cmd":"PING"}') + masked(9, b"") + masked(8, b"")
MONIQUE = upgrade("/monique") + b"".join(
    masked(2, msgpack.packb(value))
    for value in (
        {"command": "ping", "data": 1},
        {"command": "subscribe", "data": [{"spec": "a_b", "type": "data"}]},
        {"command": "push_to_mq", "data": {"tag": "data:a_b:1::me", "message": b"\x81\xa1x\x01"}},
        {"command": "unsubscribe", "data": [{"spec": "a_b", "type": "data"}]},
    )
)
API = (
    request("POST", "/queues", '{"queue":"n"}')
    + request("POST", "/queue/pause?queue=m", '{"for_s":0.1}')
    + request("GET", "/messages?queue=m&state=all&count=5")
    + request("GET", "/messages?queue=m&state=ready&after=1&where=text~1&body_max=3")
    + request("GET", "/message?queue=m&uid=0000003_00000001")
    + request("GET", "/messages/history?queue=m&uid=0000003_00000001")
    + request("GET", "/messages/why?queue=m&uid=0000003_00000001")
    + request("POST", "/messages/move?queue=m", '{"to":"n","where":["priority<5","header.a=b"],"limit":3}')
    + request("POST", "/messages/redrive?queue=n", '{"to":"m","dry_run":true}')
    + request("POST", "/queue/resume?queue=m", "{}")
)
CONTROLLER = GREETING + READY + 20 * PING  # as a PULL socket of libzmq
SESSIONS = [
    Session("worker", WORKER), Session("worker", BLOCKS), Session("taskflux", TASKFLUX), Session("http", FRAMES),
    Session("http", MONIQUE), Session("http", API), Session("controller", CONTROLLER),
]  # fmt: skip


def mutated(session: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, lost, doubled, moved or added."""
    data = bytearray(session)
    for _ in range(draw.randint(1, 6)):
        at, size = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 4, 16, 64))
        piece = data[at : at + size]
        match draw.randrange(6):
            case 0:
                data[at : at + size] = bytes(draw.randrange(256) for _ in piece)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = piece * draw.choice((1, 2, 50))
            case 3:
                data[at:at] = draw.randbytes(size)
            case 4:
                data[at : at + size] = draw.choice((b"\xff", b"\x00", b"\x7f", b"9", b'"', b"[", b"{", b"\\")) * len(
                    piece
                )
            case 5:
                del data[at:]
        data = data or bytearray(b"x")
    return bytes(data)
