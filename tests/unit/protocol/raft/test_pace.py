"""Pace: the speed at which a gap is closed.  The scripts prove which peers are slowed down."""

import pytest

from tests.helpers.raft.actor import ENTRY_BYTES, SETTINGS
from tests.helpers.raft.script import Scene
from wakeq.protocol.raft import pace
from wakeq.protocol.raft.pace import ELECTIONS_TO_CATCH_UP
from wakeq.protocol.raft.progress import Progress

LACKING = 60  # entries


@pytest.fixture
def scene() -> Scene:
    """Return a scene in which node 1 leads and has just noticed that node 3 is far behind."""
    made = Scene()
    build = ["cluster 1 2 3", "lead 1", *["propose 1 20", "drop 1>3", "settle"] * 3, "restart 3", "lost 1 3", "settle"]
    for command in build:
        made.play(command)
    return made


def far_behind(scene: Scene) -> Progress:
    return scene.actors[1].core.leader().peers[3]


def test_gap_is_closed_within_the_configured_election_timeouts(scene: Scene) -> None:
    began_ms, last_index = scene.actors[1].now_ms, scene.actors[1].core.log.last_index

    while far_behind(scene).match < last_index:
        scene.play("tick 1 20")
        scene.play("settle")

    # Entries within one window are sent without delay.
    share = 1 - SETTINGS.window.flying_bytes / (LACKING * ENTRY_BYTES)
    took = (scene.actors[1].now_ms - began_ms) / SETTINGS.election_ms
    assert share / 2 < took / ELECTIONS_TO_CATCH_UP <= share


def test_gap_is_closed_even_by_ticks_too_short_for_a_byte(scene: Scene) -> None:
    scene.play("tick 1 1")
    before = far_behind(scene).allowance_bytes
    for _ in range(10):
        scene.play("tick 1 1")

    assert far_behind(scene).allowance_bytes >= before + 10


def test_peer_that_proposals_wait_for_is_not_slowed_down(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_max = LACKING * ENTRY_BYTES // 2
    leader = scene.actors[1].core.leader()
    before = leader.behind_bytes()

    monkeypatch.setattr(pace, "BEHIND_BYTES_MAX", bytes_max)
    scene.play("tick 1 1")
    scene.play("settle")

    assert leader.behind_bytes() <= bytes_max < before
