"""Images of the state between nodes: who lacks what was cut off gets one, whatever has become of it on the way."""

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.clusters.by_hand import HandCluster, HandNode, Operator
from wakeq.actors.log.images import FetchImage
from wakeq.actors.log.peer import PeerChunks
from wakeq.actors.log.writer import Cut
from wakeq.data.opening import open_all
from wakeq.node.assembly import RestartWithNewState
from wakeq.protocol.wire.peer.frames import Chunk
from wakeq.storage.state.images import RECEIVED_NAME, ImageWriter
from wakeq.storage.state.lmdb_store import StateStore

Q = "q"
MESSAGES = 5
STEPS = ("fdatasync", "fsync", "rename", "replace", "ftruncate", "pwrite", "pwritev", "mkdir", "unlink", "rmdir")
STEPS_MIN = 20  # at least so many are between the beginning and the end


def install(path: Path, steps: int) -> bool:
    """Open a data directory in a process of its own that ends after so many steps; return whether it came through."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    left = itertools.count(steps, -1)

    def dying(do: Any) -> Any:
        return lambda *args, **more: do(*args, **more) if next(left) else os._exit(1)

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))
    StateStore.commit = dying(StateStore.commit)  # type: ignore[method-assign]
    open_all(path, upgrade=False, segment_bytes_max=1 << 20)
    os._exit(0)


@pytest.fixture
def straggler(cluster: HandCluster, leader: HandNode) -> HandNode:
    """A node that was away so long that the others have cut off what it lacks."""
    away = cluster.others(leader)[-1]
    client = leader.client()
    away.opened.log.segment_bytes_max = 1
    client.publish(Q)
    cluster.advance(1.5)
    away.kill()
    leader.opened.log.segment_bytes_max = 1
    for _ in range(MESSAGES - 1):
        client.publish(Q)
        cluster.advance(1.5)  # a cut of the state, and a segment is sealed
    assert client.call("CLUSTER", do="snapshot")["cmd"] == "cluster"
    leader.raft_log.tell(Cut(leader.queues.flushed_index))
    cluster.settle()
    assert leader.opened.log.first_index > 1
    return away


def size(node: HandNode) -> int:
    return node.queues.processes.by_name[Q].ledger.columns.living


def let_it_come(cluster: HandCluster, node: HandNode) -> None:
    cluster.bring_up(node)
    cluster.advance(60.0)


def send_state(cluster: HandCluster, node: HandNode) -> None:
    """Start a node and end it once it has been sent the state, which its next start is to install."""
    with pytest.raises(RestartWithNewState):
        let_it_come(cluster, node)
    node.failures.clear()
    node.kill()


def bring_back(cluster: HandCluster, node: HandNode) -> None:
    send_state(cluster, node)
    cluster.bring_up(node)
    cluster.advance(0.5)


def test_follower_that_lacks_removed_entries_is_sent_the_state(cluster: HandCluster, straggler: HandNode) -> None:
    bring_back(cluster, straggler)

    assert size(straggler) == MESSAGES


def test_image_that_finds_no_room_is_given_up_and_comes_when_there_is(
    cluster: HandCluster, straggler: HandNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that it fills to the brim is one on which the log ends the node."""
    with monkeypatch.context() as patch:
        patch.setattr("wakeq.node.assembly.UNBOUNDED_BYTES", 0)
        cluster.bring_up(straggler)
        cluster.advance(20.0)

    assert "kept for acknowledgements" in caplog.text
    assert not list(straggler.opened.directory.consensus.glob("raft.received*"))
    with pytest.raises(RestartWithNewState):
        cluster.advance(60.0)
    straggler.failures.clear()
    straggler.kill()
    cluster.bring_up(straggler)
    cluster.advance(0.5)
    assert size(straggler) == MESSAGES


@pytest.mark.parametrize("offset", [20, -40], ids=["header", "body"])
def test_image_that_has_rotted_is_made_again(
    cluster: HandCluster, leader: HandNode, straggler: HandNode, offset: int
) -> None:
    path = leader.opened.snapshot_path
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)

    bring_back(cluster, straggler)

    assert size(straggler) == MESSAGES


def test_installation_that_is_killed_at_any_step_is_done_by_the_next_start(
    cluster: HandCluster, leader: HandNode, straggler: HandNode, directory: Path
) -> None:
    send_state(cluster, straggler)
    leads = leader.opened.store
    index = leads.applied().log_index
    steps, is_whole = 0, False
    while not is_whole:
        path = directory / f"killed-after-{steps}"
        shutil.copytree(straggler.path, path)

        is_whole = install(path, steps)

        opened = open_all(path, upgrade=False, segment_bytes_max=1 << 20)
        applied, log = opened.store.applied(), opened.log
        found = applied, log.first_index, log.last_index, log.term_at(index)
        opened.close()
        assert found == (leads.applied(), index + 1, index, leads.applied().term), f"killed after {steps} steps"
        steps += 1
    assert steps > STEPS_MIN


def test_piece_of_an_earlier_transfer_is_not_taken(leader: HandNode) -> None:
    images, peer = leader.assembly.images, leader.runtime.spawn(Operator)
    assert images is not None
    received = leader.opened.directory.consensus / RECEIVED_NAME

    def send(stream: int) -> bytes:
        images.tell(PeerChunks(0, peer, [Chunk(stream, 0, b"the beginning")]))
        leader.settle()
        return received.read_bytes() if received.exists() else b""

    before = send(6)
    images.tell(FetchImage(peer, 7))
    meanwhile = send(6)
    then = send(7)

    assert (before, meanwhile, then) == (b"", b"", b"the beginning")
    assert images.alive


def test_image_that_broke_off_takes_no_room(directory: Path) -> None:
    writer = ImageWriter(directory)
    writer.write(0, b"the beginning")

    writer.discard()

    assert not writer.path.exists()
