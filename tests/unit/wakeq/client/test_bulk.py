"""Tests of BulkClient: blocks, claims and stashes, with the real broker in memory."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import Columns
from wakeq.protocol.errors import BadField, EpochSettled, StashExpired, TooLarge
from wakeq.protocol.wire.worker.blocks import Buffers, pack
from wakeq.protocol.wire.worker.codec import Block


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    made = MemoryClient()
    yield made
    made.machine.close()


def columns(*bodies: bytes, **others: list[Any]) -> Columns:
    named: list[tuple[str, Any]] = [("body", list(bodies)), *others.items()]
    return Columns(len(bodies), [name for name, _ in named], pack(named))


def bodies(block: Block | None) -> list[bytes]:
    assert block is not None
    return Buffers(block.block, block.rows, block.columns).texts("body")


def test_block_is_published_and_fetched_with_all_columns(client: MemoryClient) -> None:
    uid = client.publish_block("q", columns(b"b", b"a", priority=[1, 0], headers=[b"", b"\x81\xa1k\xa1v"]))

    block = client.fetch_block("q", 10)

    assert block is not None
    buffers = Buffers(block.block, block.rows, block.columns)
    assert buffers.texts("body") == [b"a", b"b"]
    assert buffers.texts("uid")[1] == uid.encode()
    assert list(buffers.numbers("priority")) == [0, 1]
    assert buffers.texts("headers") == [b"\x81\xa1k\xa1v", b""]
    lease = f"{block.term}-{buffers.numbers('sequence')[1]}"
    assert client.ack("q", uid, lease=lease)


def test_messages_of_a_block_equal_messages_in_json(client: MemoryClient) -> None:
    client.publish_block("q", columns(b"a", b"bc"))
    client.machine.crash()
    client.machine.start()

    assert [message.body for message in client.fetch_many("q", 5)] == [b"a", b"bc"]


def test_peek_walks_through_a_queue_in_the_order_of_publication(client: MemoryClient) -> None:
    client.publish_block("q", columns(*(b"%d" % i for i in range(7)), priority=[-i for i in range(7)]))
    client.fetch("q")

    first = client.peek_block("q", count=4)
    rest = client.peek_block("q", after=first.next, count=4)

    assert bodies(first) + bodies(rest) == [b"%d" % i for i in range(7)]
    assert (rest.next, rest.last) == (0, 7)
    assert Buffers(rest.block, rest.rows, rest.columns).texts("state") == [b"ready", b"ready", b"leased"]


def test_only_wanted_columns_are_sent(client: MemoryClient) -> None:
    client.publish_block("q", columns(b"x" * 1_000))
    client.stage("q", "s", 1, count=1)
    wanted = ["state", "uid"]

    seen = client.peek_block("q", columns=wanted)
    staged = client.read_slice("q", "s", 1, 0, offset=0, count=9, columns=wanted)

    assert (seen.rows, seen.columns, staged.rows, staged.columns) == (1, ["uid", "state"], 1, ["uid"])
    assert max(len(seen.block), len(staged.block)) < 200
    for wrong in (["colour"], []):
        with pytest.raises(BadField, match="columns"):
            client.peek_block("q", columns=wrong)


def test_epoch_is_staged_read_and_settled(client: MemoryClient) -> None:
    client.publish_block("q", columns(b"a", b"b", b"c"))

    claimed = client.stage("q", "s", 1, count=10, slices=2)

    assert claimed is not None
    assert list(claimed.sizes) == [2, 1]
    assert bodies(client.read_slice("q", "s", 1, 0, offset=0, count=9)) == [b"a", b"b"]
    assert client.renew("q", "s", timeout=60) == 1
    assert client.next_epoch("q", "s") == 1
    assert client.settle("q", "s", 1) == 3
    assert client.next_epoch("q", "s") == 2
    assert client.stage("q", "s", 2, count=10) is None
    with pytest.raises(EpochSettled):
        client.read_slice("q", "s", 1, 0, offset=0, count=9)


def test_stashes_are_published_once(client: MemoryClient) -> None:
    client.stash("q", "t", 0, columns(b"a"), keep=60)

    assert client.publish_stashes("q", [("t", 1)], writer="w", epoch=4) == 1
    assert client.publish_stashes("q", [("t", 1)], writer="w", epoch=4) == 0

    assert client.writer_epoch("q", "w") == 4
    with pytest.raises(StashExpired):
        client.publish_stashes("q", [("t", 1)], writer="w", epoch=5)
    assert bodies(client.fetch_block("q", 9)) == [b"a"]


@pytest.mark.parametrize(
    ("given", "error", "complaint"),
    [
        (columns(b"x" * (1 << 20), b"x" * 1_048_577), TooLarge, "the limit is 1048576"),
        (columns(b"a", uid=[b"b"]), BadField, "'uid' cannot be published"),
        (columns(b"a", delay=[-1]), BadField, "column delay"),
        (columns(b"a", headers=[b"\xc1"]), BadField, "MessagePack map"),
        (Columns(2, ["body"], b""), BadField, "need"),
    ],
)
def test_invalid_block_is_refused_as_a_whole(
    client: MemoryClient, given: Columns, error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        client.publish_block("q", given)

    assert client.queues("q") == []
