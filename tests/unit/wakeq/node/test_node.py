"""Node: memory that it returns, what a shutdown leaves for the next start, and the warning about a clock step."""

import asyncio
import json
import logging
import shutil
from pathlib import Path

import pykka
import pytest

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.operator import Question
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.node import node
from wakeq.node.node import Sizes
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.storage.log import segmented_log as raft_log
from wakeq.storage.state.lmdb_store import StateStore

SELDOM = Sizes(flush_after_ms=3_600_000)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of `rest` adds the index that the state had."""
    rests: list[int] = []
    rest = StateStore.release_memory

    def noted(store: StateStore) -> bool:
        rests.append(store.applied().log_index)
        return rest(store)

    monkeypatch.setattr(StateStore, "release_memory", noted)
    monkeypatch.setattr(node, "REST_AFTER_BYTES", 1_000)
    return rests


async def return_memory(here: NodeHere) -> None:
    """Let the node return memory, and wait until it has."""
    here.node._return_memory()
    while here.node.assembly.state_disk.busy:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_state_returns_memory_once_after_everything_is_flushed(tmp_path: Path, rests: list[int]) -> None:
    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await return_memory(here)
            # The message is in the log only.
            assert rests == []
            await here.node._flush()
            for _ in range(3):
                await return_memory(here)
            assert len(rests) == 1
            message = await client.fetch("q")
            assert message is not None
            assert message.body == b"x" * 2_000

    asyncio.run(story())


def test_state_with_readers_returns_memory_after_they_are_gone(tmp_path: Path, rests: list[int]) -> None:
    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await here.node._flush()
            with here.node.files.store.read():
                await return_memory(here)
                await return_memory(here)
            assert len(rests) == 2
            for _ in range(3):
                await return_memory(here)
            assert len(rests) == 3

    asyncio.run(story())


def test_state_that_cannot_be_reopened_fails_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: StateStore) -> bool:
        raise OSError("gone")

    monkeypatch.setattr(StateStore, "release_memory", fail)
    monkeypatch.setattr(node, "REST_AFTER_BYTES", 1_000)

    async def story() -> BaseException:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("q", b"x" * 2_000)
            await here.node._flush()
            here.node._return_memory()
            assert here.node.failed is not None
            return await asyncio.wait_for(asyncio.shield(here.node.failed), 30)

    assert str(asyncio.run(story())) == "gone"


def test_start_after_a_shutdown_has_no_entries_to_apply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        caplog.set_level("INFO", logger="wakeq.node")
        for number in range(2):
            async with node_here(tmp_path / "data", sizes=SELDOM) as here, client_of(here) as client:
                await client.publish("q", str(number))
                shutil.copytree(tmp_path / "data", tmp_path / "crashed", dirs_exist_ok=True)
        assert caplog.messages[-1] == "stopped"
        assert "not in the state yet" not in caplog.text
        async with node_here(tmp_path / "crashed"):
            assert "2 entries of the log that are not in the state yet" in caplog.text

    asyncio.run(story())


def test_message_delivered_just_before_a_shutdown_is_not_redelivered_after_it(tmp_path: Path) -> None:
    """The record of a delivery may be in memory alone for some milliseconds, because no answer waits for it."""

    async def ask(here: NodeHere, **command: str) -> dict[str, object]:
        """Send one command on a connection of its own and return the reply."""
        host, _, port = here.worker.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(json.dumps(command).encode() + b"\n")
        reply: dict[str, object] = json.loads(await reader.readline())
        writer.close()
        return reply

    async def story() -> list[object]:
        async with node_here(tmp_path / "data") as here:
            await ask(here, cmd="PUB", qname="q", message="m")
            # After this the shutdown has nothing else to wait for.
            await here.node._flush()
            first = await ask(here, cmd="FET", qname="q")
        async with node_here(tmp_path / "data") as here:
            second = await ask(here, cmd="FET", qname="q")
        return [first["cmd"], second["cmd"]]

    assert asyncio.run(story()) == ["msg", "nomsg"]


def test_shutdown_leaves_no_long_log_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


REFUSED = Refusal("NOT_LEADER", "another one leads")


def warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, serves: bool
) -> list[str]:
    """Return what a node logs about its clock after the process has stood still for 13 s."""

    async def story() -> None:
        async with node_here(tmp_path / "data") as here:
            node = here.node
            clock = node.clock
            wall_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
            with monkeypatch.context() as patch:
                patch.setattr(clock, "wall_ms", lambda: wall_ms + 15_000)
                patch.setattr(clock, "monotonic_ms", lambda: monotonic_ms + 15_000)
                patch.setattr(node.raft_log, "refusal", lambda: None if serves else REFUSED)
                node._time.now_ms()
                node._report_clock_step()

    with caplog.at_level(logging.WARNING, "wakeq.node"):
        run(story())
    return [record.getMessage() for record in caplog.records if "cluster clock" in record.getMessage()]


def test_clock_step_of_a_serving_node_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (text,) = warned(tmp_path, monkeypatch, caplog, serves=True)

    assert "ms ahead of the cluster clock" in text
    assert "restart" not in text


def test_clock_step_of_a_node_that_does_not_serve_is_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned(tmp_path, monkeypatch, caplog, serves=False) == []


def test_running_node_is_asked_by_another_thread_until_it_stops(tmp_path: Path) -> None:
    def ask() -> str:
        (log,) = pykka.ActorRegistry.get_by_class(RaftLog)
        question = Question()
        log.tell(Administer(question, "status"))
        return str(question.get(timeout=60)["role"])

    async def story() -> str:
        async with node_here(tmp_path / "data"):
            return await asyncio.to_thread(ask)

    role = run(story())

    assert role == "leader"
    assert pykka.ActorRegistry.get_by_class(Process) == []
