"""Publishes are refused while there is no room for them, and taken again when there is."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.helpers.node_here import client_of, node_here
from wakeq.actors.log.files import Cut
from wakeq.actors.mail import Pressure
from wakeq.data.opening import Opened
from wakeq.node.assembly import Assembly
from wakeq.node.headroom import Headroom

LIMIT_BYTES = 1_000


def test_a_node_that_holds_as_much_as_it_may_refuses_publishes_until_something_goes(tmp_path: Path) -> None:
    async def story() -> tuple[str, str, bool]:
        async with node_here(tmp_path / "data", node_bytes_max=LIMIT_BYTES) as here, client_of(here) as client:
            headroom = here.node._headroom
            await client.publish("q", b"x" * LIMIT_BYTES)
            headroom.look()
            refused = await _error_of(client.publish("q", b"y"))
            message = await client.fetch("q")
            assert message is not None
            await message.ack()
            headroom.look()
            taken = await _error_of(client.publish("q", b"z"))
            return refused, taken, headroom.is_used_up

    refused, taken, is_used_up = asyncio.run(story())

    assert refused == "QUEUE_FULL"
    assert taken == ""
    assert not is_used_up


def test_a_node_whose_directory_is_removed_ends_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with node_here(tmp_path / "data") as here:
            (tmp_path / "data").rename(tmp_path / "gone")

            here.node._beat()
            failed = here.node.failed

            (tmp_path / "gone").rename(tmp_path / "data")
            assert failed is not None
            assert "the directory was removed" in str(failed.result())

    asyncio.run(story())


def test_a_full_disk_is_rid_of_log_and_history_for_as_long_as_it_is_full() -> None:
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
    headroom = Headroom(cast("Opened", files), cast("Assembly", assembly), node_bytes_max=0)

    for queues.flushed_index in (7, 8, 9, 10):
        headroom.look()

    assert cleared == [7, 8, 9, 10]
    assert [message.index for message in told if type(message) is Cut] == [8, 9, 10]


@pytest.mark.parametrize(
    ("unflushed_mib", "said"),
    [
        (0, "has 90 MiB free, and 50 MiB (25 % of it) are kept"),
        (24, "has 90 MiB free, 48 MiB of that for the state of what was taken, and 50 MiB (25 % of it) are kept"),
    ],
)
def test_who_is_refused_hears_what_the_free_bytes_are_for(unflushed_mib: int, said: str) -> None:
    told: list[Any] = []
    directory = SimpleNamespace(
        path="d", out_of_room=False, check_space=lambda *_: True, check_last_room=lambda _: False,
        free_bytes=lambda: 90 << 20, reserve_bytes=lambda: 50 << 20, disk_bytes=200 << 20,
    )  # fmt: skip
    queues = SimpleNamespace(unflushed_bytes=unflushed_mib << 20, reusable_bytes=0, flushed_index=7)
    files = SimpleNamespace(directory=directory, log=SimpleNamespace(journal=None))
    assembly = SimpleNamespace(queues=queues, raft_log=SimpleNamespace(tell=told.append))
    headroom = Headroom(cast("Opened", files), cast("Assembly", assembly), node_bytes_max=0)

    headroom.look()
    headroom.look()

    (refusal,) = [message.refusal for message in told if type(message) is Pressure]
    assert said in refusal.detail


def test_that_history_was_removed_is_said_once_until_publishes_are_taken_again_and_only_if_there_was_any(
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
    headroom = Headroom(cast("Opened", files), cast("Assembly", assembly), node_bytes_max=0)

    def said_when(*looks: tuple[bool, int]) -> int:
        """Return how often it was said meanwhile: whether the disk is full, and how much history there is."""
        nonlocal is_full, segments
        caplog.clear()
        for look in looks:
            is_full, segments = look
            headroom.look()
        return sum("of the journal are removed" in message for message in caplog.messages)

    assert said_when((True, 0), (False, 0), (True, 0)) == 0, "there was none"
    assert said_when((True, 3), (True, 1), (False, 0)) == 1
    assert caplog.messages[0].startswith(
        "the disk of d is nearly full: segments of the journal are removed until it has room (3 so far)"
    )
    assert said_when((True, 2), (False, 0)) == 1, "publishes were taken again"
    assert said_when((True, 2), (False, 0), (True, 2)) == 0, "they were taken all along"


async def _error_of(work: Any) -> str:
    try:
        await work
    except Exception as error:
        return str(getattr(error, "code", error))
    return ""


def test_of_the_room_for_an_image_goes_what_the_state_will_need() -> None:
    queues = SimpleNamespace(unflushed_bytes=10)
    directory = SimpleNamespace(image_room_bytes=lambda owed_bytes: 100 - owed_bytes)
    files, assembly = SimpleNamespace(directory=directory), SimpleNamespace(queues=queues)
    headroom = Headroom(cast("Opened", files), cast("Assembly", assembly), node_bytes_max=0)

    assert headroom.image_room_bytes() == 80


def test_a_node_with_as_many_queues_as_it_may_have_creates_none_until_one_is_dropped(tmp_path: Path) -> None:
    async def story() -> list[str]:
        async with node_here(tmp_path / "data", queues_max=3) as here, client_of(here) as client:
            headroom, found = here.node._headroom, []
            for name in ("a", "b"):  # beside the default queue
                await client.publish(name, b"x")
            headroom.look()
            found.append(await _error_of(client.publish("c", b"x")))
            found.append(await _error_of(client.publish("a", b"x")))
            await client.delete_queue("b")
            headroom.look()
            found.append(await _error_of(client.publish("c", b"x")))
            return found

    assert asyncio.run(story()) == ["TOO_MANY_QUEUES", "", ""]
