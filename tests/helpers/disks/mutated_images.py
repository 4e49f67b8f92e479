"""Images: one with a little of everything that a queue can hold, and changed copies of it.

    image_of(directory) --> the items of a real image      mutated(random, header, items) --> the same, and what changed

A changed image has right checksums again, as a forger would see to: only ranges and encodings can show the change.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgspec

from tests.helpers.brokers.broker import Broker
from wakeq.actors.mail import Propose
from wakeq.actors.runtime import Process
from wakeq.actors.snapshots import ImageWritten, WriteImage
from wakeq.protocol.log.entries import PauseQueue
from wakeq.protocol.log.rows import ROW
from wakeq.protocol.queue.lanes import Proposal
from wakeq.storage.state.snapshot import Item, SnapshotHeader, read_snapshot
from wakeq.storage.state.store import DEDUP, INDEX, MESSAGES, QUEUES, with_checksum, without_checksum

NUMBERS = [0, 1, 2, 255, 511, 512, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 47, 1 << 48, 1 << 62, (1 << 63) - 1]
HUGE = [1 << 63, (1 << 64) - 1]
BELOW = [-1, -512, -(1 << 31), -(1 << 63)]
TEXTS = ["", "x", "\x00", "\x1b[31m", "a b", "é", "\ud800", "x" * 300, "x" * 70_000, "rejected", "u"]
_INDEX_HEAD = struct.Struct(">BBH")


class _Asker(Process):
    def on_receive(self, message: Any) -> None:
        assert isinstance(message, ImageWritten)


def image_of(directory: Path) -> tuple[SnapshotHeader, list[Item]]:
    """Make an image of a broker with a little of everything, in an empty directory."""
    broker = Broker(directory)
    try:
        _fill(broker)
        broker.flush()
        broker.snapshots.tell(WriteImage(broker.runtime.spawn(_Asker)))
        broker.settle()
        header, items = read_snapshot(broker.files.snapshot_path, broker.files.identity)
        return header, list(items)
    finally:
        broker.close()


def _fill(broker: Broker) -> None:
    client, worker = broker.client(), broker.client()
    worker.call("HELLO", session="sess")
    client.call("CREATE", "limited", max_deliveries=2, max_size=50, priority_min=-5, priority_max=5, structure="QA")
    client.call("CREATE", "slow", retry={"backoff": "exponential", "base": 2, "max": 60, "jitter": 0.5}, timeout=30)
    for name in ("plain", "limited", "slow", ""):
        for place in range(4):
            client.publish(name, f"body {place}", priority=place - 2)
    client.publish("plain", "later", delay=3_000, expires=9_000, timeout=77, headers={"trace": "é", "b": ""})
    client.publish("plain", "once", id="an-id")
    worker.call("PUB", "plain", message="numbered", n=1)
    for _ in range(3):
        one = worker.fetch("slow")
        worker.call("NACK", "slow", uid=one["uid"], lease=one["lease"], error="no such address")
    one = worker.fetch("limited")
    worker.call("NACK", "limited", uid=one["uid"], lease=one["lease"], error="é", dead=True)
    worker.fetch("plain")
    for source, epoch in (("spark", 1), ("spark", 2)):
        client.call("STAGE", "", source=source, epoch=epoch, count=1)
    client.call("STASH", "plain", stash="put", messages=["a", "b"])
    client.call("STASH", "plain", stash="put", part=1, messages=["c"])
    client.call("STASH", "slow", stash="done", messages=["d"])
    client.call("UNSTASH", "slow", stashes=[("done", 1)], writer="writer", epoch=3)
    client.call("STASH", "slow", stash="for later", messages=["e"], writer="writer", epoch=9)
    client.call("STAGE", "plain", source="read", epoch=2, count=1)
    client.call("SLICE", "plain", source="read", epoch=2, reader="reader", batch=4, run="run")
    client.call("UNSTASH", "slow", stashes=[], writer="writer", epoch=4, reader="reader", run="run", id="id")
    client.call("STAGE", "plain", source="read", epoch=5, count=1)
    client.call("SETTLE", "plain", source="read", epoch=2)
    paused = PauseQueue("limited", broker.now_ms() + 60_000)
    broker.operate("limited", lambda asker: Propose([Proposal(paused, asker)]))
    broker.advance(1)


def mutated(random: Random, header: SnapshotHeader, items: list[Item]) -> tuple[SnapshotHeader, list[Item], str]:
    """Change one thing; return the image, and what was changed."""
    if random.random() < 0.05:
        field = random.choice(["last_index", "last_term", "clock_ms"])
        value = random.choice(NUMBERS + HUGE)
        return replace_header(header, field, value), items, f"header {field} = {value}"
    place = random.randrange(len(items))
    table, key, value = items[place]
    if random.random() < 0.12:
        done = _about_keys(random, items, place)
        if done is not None:
            return header, *done
    change: Callable[[Random, bytes], tuple[bytes, str]] = {
        MESSAGES: _row, INDEX: _chunk, QUEUES: _packed, DEDUP: _packed
    }[table]  # fmt: skip
    new, what = change(random, value)
    return header, [*items[:place], (table, key, new), *items[place + 1 :]], f"table {table} {key!r}: {what}"


def replace_header(header: SnapshotHeader, field: str, value: int) -> SnapshotHeader:
    facts = {name: getattr(header, name) for name in ("identity", "last_index", "last_term", "clock_ms")}
    return SnapshotHeader(**(facts | {field: value}))


def _about_keys(random: Random, items: list[Item], place: int) -> tuple[list[Item], str] | None:
    """Leave a record out, or give it another key."""
    table, key, value = items[place]
    before, behind = items[:place], items[place + 1 :]
    match random.choice(["gone", "bits", "short", "table"]):
        case "gone":
            return [*before, *behind], f"table {table} {key!r} is left out"
        case "bits":
            at = random.randrange(len(key))
            other = key[:at] + bytes([key[at] ^ (1 << random.randrange(8))]) + key[at + 1 :]
            return [*before, (table, other, value), *behind], f"table {table} {key!r} is under {other!r}"
        case "short":
            other = key[: random.randrange(1, len(key))]
            return [*before, (table, other, value), *behind], f"table {table} {key!r} is under {other!r}"
        case _:
            other_table = random.choice([MESSAGES, INDEX, QUEUES, DEDUP, 5, 6, 77])
            return [*before, (other_table, key, value), *behind], f"table {table} {key!r} is in table {other_table}"


def _row(random: Random, value: bytes) -> tuple[bytes, str]:
    """Change a number of a message, or cut it."""
    fields = list(ROW.unpack_from(value))
    tail = value[ROW.size :]
    if random.random() < 0.15:
        tail = tail[: random.randrange(len(tail) + 1)]
        what = f"{len(tail)} bytes behind its numbers"
    elif random.random() < 0.15 and tail:
        at = random.randrange(len(tail))
        tail = tail[:at] + bytes([tail[at] ^ 0xFF]) + tail[at + 1 :]
        what = f"byte {at} behind its numbers"
    else:
        at = random.randrange(len(fields) - 1)
        bits = {"B": 8, "Q": 64, "q": 63, "I": 32, "H": 16}["BQQQqIIIIQQQQHHI"[at]]
        choices = [one for one in NUMBERS + HUGE if one < 1 << bits] + (BELOW if bits == 63 else [])
        fields[at] = random.choice(choices)
        what = f"number {at} = {fields[at]}"
    head = ROW.pack(*fields)[:-4]
    return head + crc32(tail, crc32(head)).to_bytes(4, "big") + tail, what


def _chunk(random: Random, value: bytes) -> tuple[bytes, str]:
    """Change a byte or a number of an index record."""
    head, body = bytearray(value[:4]), bytearray(value[8:])
    match random.choice(["head", "u32", "u64", "cut", "more"]):
        case "head":
            at = random.randrange(1, 4)
            head[at] = random.randrange(256)
            what = f"byte {at} = {head[at]}"
        case "u32":
            at = 4 * random.randrange(max(1, len(body) // 4))
            number = random.choice([one for one in NUMBERS if one < 1 << 32])
            body[at : at + 4] = number.to_bytes(4, "big")
            what = f"u32 at {at} = {number}"
        case "u64":
            at = 4 * random.randrange(max(1, len(body) // 4))
            number = random.choice(NUMBERS + BELOW)
            body[at : at + 8] = number.to_bytes(8, "big", signed=True)
            what = f"i64 at {at} = {number}"
        case "cut":
            del body[random.randrange(len(body)) :]
            what = f"{len(body)} bytes"
        case _:
            body += bytes(random.randrange(1, 20))
            what = "more bytes"
    return bytes(head) + crc32(bytes(body), crc32(bytes(head))).to_bytes(4, "big") + bytes(body), what


def _packed(random: Random, value: bytes) -> tuple[bytes, str]:
    """Change a part of what is MessagePack, or a byte of it."""
    raw = without_checksum(value)
    assert raw is not None, "it was whole"
    if random.random() < 0.15:
        at = random.randrange(len(raw))
        return with_checksum(raw[:at] + bytes([random.randrange(256)]) + raw[at + 1 :]), f"byte {at}"
    content = msgspec.msgpack.decode(raw)
    places = list(_places(content, ()))
    path = random.choice(places)
    new = random.choice([*NUMBERS, *HUGE, *BELOW, *TEXTS, None, True, 0.5, [], {}])
    if isinstance(new, str):
        packed = msgspec.msgpack.encode(_changed(content, path, "?"))
        raw_text = new.encode(errors="surrogatepass")
        marker = b"\xa1?"
        if len(raw_text) >= 1 << 16:
            text = b"\xdb" + len(raw_text).to_bytes(4, "big") + raw_text
        else:
            text = b"\xda" + len(raw_text).to_bytes(2, "big") + raw_text
        return with_checksum(packed.replace(marker, text, 1)), f"{path} = {new[:20]!a}"
    return with_checksum(msgspec.msgpack.encode(_changed(content, path, new))), f"{path} = {new}"


def _places(content: Any, path: tuple[Any, ...]) -> Any:
    """Yield the path of everything in it."""
    if isinstance(content, dict):
        rows = list(content.items())
    elif isinstance(content, list):
        rows = list(enumerate(content))
    else:
        rows = []
    if path:
        yield path
    elif not rows:
        yield ()
    for name, inner in rows:
        yield from _places(inner, (*path, name))


def _changed(content: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(content, dict):
        return content | {path[0]: _changed(content[path[0]], path[1:], new)}
    return [_changed(one, path[1:], new) if place == path[0] else one for place, one in enumerate(content)]
