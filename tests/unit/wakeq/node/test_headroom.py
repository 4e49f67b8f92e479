"""Headroom: publishes are refused while there is no room for them, and accepted again afterwards."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.helpers.brokers.node_here import client_of, node_here
from wakeq.actors.log.writer import Cut
from wakeq.actors.mail import Pressure
from wakeq.data.opening import DataFiles
from wakeq.node.assembly import Assembly
from wakeq.node.headroom import Headroom

LIMIT_BYTES = 1_000


def test_node_at_its_byte_limit_refuses_publishes_until_a_message_leaves(tmp_path: Path) -> None:
    async def story() -> tuple[str, str, bool]:
        async with node_here(tmp_path / "data", node_bytes_max=LIMIT_BYTES) as here, client_of(here) as client:
            headroom = here.node._headroom
            await client.publish("q", b"x" * LIMIT_BYTES)
            headroom.tick()
            refused = await _error_of(client.publish("q", b"y"))
            message = await client.fetch("q")
            assert message is not None
            await message.ack()
            headroom.tick()
            taken = await _error_of(client.publish("q", b"z"))
            return refused, taken, headroom.is_used_up

    refused, taken, is_used_up = asyncio.run(story())

    assert refused == "QUEUE_FULL"
    assert taken == ""
    assert not is_used_up


def test_node_whose_directory_is_removed_fails(tmp_path: Path) -> None:
    async def story() -> None:
        async with node_here(tmp_path / "data") as here:
            (tmp_path / "data").rename(tmp_path / "gone")

            here.node._beat()
            failed = here.node.failed

            (tmp_path / "gone").rename(tmp_path / "data")
            assert failed is not None
            assert "the directory was removed" in str(failed.result())

    asyncio.run(story())


def test_full_disk_removes_journal_and_flushed_log() -> None:
    told: list[Any] = []
    cleared: list[int] = []
    queues = SimpleNamespace(unflushed_bytes=0, reusable_bytes=0, flushed_index=7)
    directory = SimpleNamespace(
        path="d", out_of_room=False, check_space=lambda *_: True, check_last_room=lambda _: False,
        free_bytes=lambda: 1, reserve_bytes=lambda: 2, disk_bytes=100,
    )  # fmt: skip

    def clear() -> int:
        cleared.append(queues.flushed_index)
        return 0

    journal = SimpleNamespace(clear=clear)
    files = SimpleNamespace(directory=directory, log=SimpleNamespace(journal=journal))
    assembly = SimpleNamespace(
        queues=queues,
        raft_log=SimpleNamespace(tell=told.append),
        reader_disk=SimpleNamespace(submit=lambda work, done: done(work())),
    )
    headroom = Headroom(cast("DataFiles", files), cast("Assembly", assembly), node_bytes_max=0)

    for queues.flushed_index in (7, 8, 9, 10):
        headroom.tick()

    assert cleared == [7, 8, 9, 10]
    assert [message.index for message in told if type(message) is Cut] == [8, 9, 10]


@pytest.mark.parametrize(
    ("unflushed_mib", "said"),
    [
        (0, "has 90 MiB free, and 50 MiB (25 % of it) are reserved"),
        (
            24,
            "has 90 MiB free, 48 MiB of which the state of accepted messages needs, and 50 MiB ",
        ),
    ],
)
def test_disk_full_refusal_explains_the_reserved_bytes(unflushed_mib: int, said: str) -> None:
    told: list[Any] = []
    directory = SimpleNamespace(
        path="d", out_of_room=False, check_space=lambda *_: True, check_last_room=lambda _: False,
        free_bytes=lambda: 90 << 20, reserve_bytes=lambda: 50 << 20, disk_bytes=200 << 20,
    )  # fmt: skip
    queues = SimpleNamespace(unflushed_bytes=unflushed_mib << 20, reusable_bytes=0, flushed_index=7)
    files = SimpleNamespace(directory=directory, log=SimpleNamespace(journal=None))
    assembly = SimpleNamespace(queues=queues, raft_log=SimpleNamespace(tell=told.append))
    headroom = Headroom(cast("DataFiles", files), cast("Assembly", assembly), node_bytes_max=0)

    headroom.tick()
    headroom.tick()

    (refusal,) = [message.refusal for message in told if type(message) is Pressure]
    assert said in refusal.detail


def test_removal_of_the_journal_is_logged_once_per_full_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_full, segments = False, 0
    directory = SimpleNamespace(
        path="d", out_of_room=False, check_space=lambda *_: is_full, check_last_room=lambda _: False,
        free_bytes=lambda: 1, reserve_bytes=lambda: 2, disk_bytes=100,
    )  # fmt: skip
    queues = SimpleNamespace(unflushed_bytes=0, reusable_bytes=0, flushed_index=7, held_bytes=0)
    files = SimpleNamespace(directory=directory, log=SimpleNamespace(journal=SimpleNamespace(clear=lambda: segments)))
    assembly = SimpleNamespace(
        queues=queues,
        raft_log=SimpleNamespace(tell=lambda _: None),
        reader_disk=SimpleNamespace(submit=lambda work, done: done(work())),
    )
    headroom = Headroom(cast("DataFiles", files), cast("Assembly", assembly), node_bytes_max=0)

    def said_when(*looks: tuple[bool, int]) -> int:
        """Run one tick for each pair (disk is full, segments of the journal); return how many removals were logged."""
        nonlocal is_full, segments
        caplog.clear()
        for look in looks:
            is_full, segments = look
            headroom.tick()
        return sum("of the journal are removed" in message for message in caplog.messages)

    assert said_when((True, 0), (False, 0), (True, 0)) == 0, "there was no journal"
    assert said_when((True, 3), (True, 1), (False, 0)) == 1
    assert caplog.messages[0].startswith(
        "the disk of d is nearly full: segments of the journal are removed until there is room (3 so far)"
    )
    assert said_when((True, 2), (False, 0)) == 1, "publishes were accepted in between"
    assert said_when((True, 2), (False, 0), (True, 2)) == 0, "publishes were never refused"


async def _error_of(work: Any) -> str:
    try:
        await work
    except Exception as error:
        return str(getattr(error, "code", error))
    return ""


def test_image_room_leaves_out_what_the_state_will_need() -> None:
    queues = SimpleNamespace(unflushed_bytes=10)
    directory = SimpleNamespace(image_room_bytes=lambda owed_bytes: 100 - owed_bytes)
    files, assembly = SimpleNamespace(directory=directory), SimpleNamespace(queues=queues)
    headroom = Headroom(cast("DataFiles", files), cast("Assembly", assembly), node_bytes_max=0)

    assert headroom.image_room_bytes() == 80


def test_node_at_its_queue_limit_refuses_new_queues_until_one_is_deleted(tmp_path: Path) -> None:
    async def story() -> list[str]:
        async with node_here(tmp_path / "data", queues_max=3) as here, client_of(here) as client:
            headroom, found = here.node._headroom, []
            # With the default queue these are three.
            for name in ("a", "b"):
                await client.publish(name, b"x")
            headroom.tick()
            found.append(await _error_of(client.publish("c", b"x")))
            found.append(await _error_of(client.publish("a", b"x")))
            await client.delete_queue("b")
            headroom.tick()
            found.append(await _error_of(client.publish("c", b"x")))
            return found

    assert asyncio.run(story()) == ["TOO_MANY_QUEUES", "", ""]
