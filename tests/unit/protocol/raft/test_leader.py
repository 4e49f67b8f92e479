"""Leader: the heir while its own disk does not answer.  The scripts prove the rest of its behaviour."""

import pytest

from tests.helpers.raft.script import Scene
from wakeq.protocol.raft.leader import Leader


def hanging(members: str, silent: tuple[int, ...] = ()) -> Leader:
    """Return a leader, node 1, whose disk lacks three entries that all others have; `silent` nodes do not answer."""
    scene = Scene()
    for command in (f"cluster {members}", "lead 1", "hold 1", "propose 1 3", "settle"):
        scene.play(command)
    core = scene.actors[1].core
    leader = core.leader()
    for node in silent:
        leader.peers[node].heard_ms = core.now_ms - core.settings.election_ms
    assert core.stable_index < core.log.last_index
    assert {peer.match for peer in leader.peers.values()} == {core.log.last_index}
    return leader


@pytest.mark.parametrize(
    ("members", "silent"),
    [
        ("1 2", ()),
        ("1 2 3", (3,)),
        ("1 2 3 4", (4,)),
        ("1 2 learner=3", ()),
        ("1 2 3 4 5", (4, 5)),
    ],
)
def test_hanging_leader_has_no_heir_if_the_others_are_no_majority(members: str, silent: tuple[int, ...]) -> None:
    assert hanging(members, silent).heir_without_us() is None


@pytest.mark.parametrize(("members", "silent", "heir"), [("1 2 3", (), 2), ("1 2 3 4", (), 2), ("1 2 3 4 5", (2,), 3)])
def test_hanging_leader_has_an_heir_if_the_others_are_a_majority(
    members: str, silent: tuple[int, ...], heir: int
) -> None:
    assert hanging(members, silent).heir_without_us() == heir


@pytest.mark.parametrize(("members", "heir"), [("1 2 3", None), ("1 2 3 4 5", 3)])
def test_node_that_lost_acknowledged_entries_is_no_heir(members: str, heir: int | None) -> None:
    leader = hanging(members)
    lost = leader.peers[2]
    lost.rejected(lost.match, 1, incarnation=lost.acked_in + 1)

    assert lost.forgot
    assert leader.heir_without_us() == heir
