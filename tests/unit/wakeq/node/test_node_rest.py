"""A node that has nothing to write any more gives back what writing needed; one that stops leaves little to read."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.node_here import NodeHere, client_of, node_here
from wakeq.node import node
from wakeq.node.node import Sizes
from wakeq.storage.log import segmented_log as raft_log
from wakeq.storage.state.lmdb_store import StateStore

SELDOM = Sizes(flush_after_ms=3_600_000)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far the state was each time when it was to rest."""
    rests: list[int] = []
    rest = StateStore.release_memory

    def noted(store: StateStore) -> bool:
        rests.append(store.applied().log_index)
        return rest(store)

    monkeypatch.setattr(StateStore, "release_memory", noted)
    monkeypatch.setattr(node, "REST_AFTER_BYTES", 1_000)
    return rests


async def look(here: NodeHere) -> None:
    """Let the node see to its memory, and wait for what comes of it."""
    here.node._give_memory_back()
    while here.node.assembly.state_disk.busy:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_the_state_rests_once_when_all_that_came_is_in_it(tmp_path: Path, rests: list[int]) -> None:
    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await look(here)
            assert rests == []  # it is in the log only
            await here.node._flush()
            for _ in range(3):
                await look(here)
            assert len(rests) == 1
            message = await client.fetch("q")
            assert message is not None
            assert message.body == b"x" * 2_000

    asyncio.run(story())


def test_a_state_that_somebody_looks_at_rests_when_nobody_does_any_more(tmp_path: Path, rests: list[int]) -> None:
    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await here.node._flush()
            with here.node.files.store.read():
                await look(here)
                await look(here)
            assert len(rests) == 2
            for _ in range(3):
                await look(here)
            assert len(rests) == 3

    asyncio.run(story())


def test_a_state_that_cannot_be_opened_again_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: StateStore) -> bool:
        raise OSError("gone")

    monkeypatch.setattr(StateStore, "release_memory", fail)
    monkeypatch.setattr(node, "REST_AFTER_BYTES", 1_000)

    async def story() -> BaseException:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await here.node._flush()
            here.node._give_memory_back()
            assert here.node.failed is not None
            return await asyncio.wait_for(asyncio.shield(here.node.failed), 30)

    assert str(asyncio.run(story())) == "gone"


def test_the_log_of_a_clean_stop_ends_with_a_word_and_the_next_start_has_nothing_to_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        caplog.set_level("INFO", logger="wakeq.node")
        for number in range(2):
            async with node_here(tmp_path / "data", sizes=SELDOM) as here, client_of(here) as client:
                await client.publish("q", str(number))
                shutil.copytree(tmp_path / "data", tmp_path / "crashed", dirs_exist_ok=True)
        assert caplog.messages[-1] == "stopped"
        assert "not in the state yet" not in caplog.text
        async with node_here(tmp_path / "crashed"):
            assert "2 entries of the log are not in the state yet" in caplog.text

    asyncio.run(story())


def test_what_was_handed_out_just_before_a_clean_stop_is_not_handed_out_again_after_it(tmp_path: Path) -> None:
    """Nobody waits for its record, which may be in memory alone for some milliseconds."""

    async def ask(here: NodeHere, **command: str) -> dict[str, object]:
        """Say one thing on a connection that does not last."""
        host, _, port = here.worker.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(json.dumps(command).encode() + b"\n")
        reply: dict[str, object] = json.loads(await reader.readline())
        writer.close()
        return reply

    async def story() -> list[object]:
        async with node_here(tmp_path / "data") as here:
            await ask(here, cmd="PUB", qname="q", message="m")
            await here.node._flush()  # so that the stop has nothing else to wait for
            first = await ask(here, cmd="FET", qname="q")
        async with node_here(tmp_path / "data") as here:
            second = await ask(here, cmd="FET", qname="q")
        return [first["cmd"], second["cmd"]]

    assert asyncio.run(story()) == ["msg", "nomsg"]


def test_a_stop_leaves_no_log_that_the_next_start_would_walk_through_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_log, "WALKED_BYTES_MAX", 1_000)

    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            log = here.node.files.log
            assert log.active_first_index > log.first_index
            message = await client.fetch("q")
            assert message is not None
            assert message.body == b"x" * 2_000

    asyncio.run(story())
