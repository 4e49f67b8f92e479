"""A node that has nothing to write any more gives back what writing needed."""

import asyncio
from pathlib import Path

import pytest

from tests.helpers.node_here import client_of, node_here
from wakeq import node
from wakeq.storage.state import StateStore


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The moments at which the state rested: how far it was."""
    rests: list[int] = []
    rest = StateStore.rest

    def noted(store: StateStore) -> None:
        rests.append(store.applied().log_index)
        rest(store)

    monkeypatch.setattr(StateStore, "rest", noted)
    monkeypatch.setattr(node, "REST_AFTER_BYTES", 1_000)
    return rests


def test_the_state_rests_once_when_all_that_came_is_in_it(tmp_path: Path, rests: list[int]) -> None:
    async def story() -> int:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            here.node._give_memory_back()  # not yet: it is in the log only
            await here.node._flush()
            for _ in range(3):
                here.node._give_memory_back()
            await here.node._flush()
            while here.node.assembly.state_disk.busy:
                await asyncio.sleep(0)
            message = await client.fetch("q")
            assert message is not None
            assert message.body == b"x" * 2_000
            return here.node.queues.flushed_index

    flushed_index = asyncio.run(story())

    assert len(rests) == 1
    assert rests[0] <= flushed_index


def test_a_state_that_cannot_be_opened_again_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: StateStore) -> None:
        raise OSError("gone")

    monkeypatch.setattr(StateStore, "rest", fail)
    monkeypatch.setattr(node, "REST_AFTER_BYTES", 1_000)

    async def story() -> BaseException:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await here.node._flush()
            here.node._give_memory_back()
            assert here.node.failed is not None
            return await asyncio.wait_for(asyncio.shield(here.node.failed), 30)

    assert str(asyncio.run(story())) == "gone"
