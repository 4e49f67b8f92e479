"""Leadership: who may take over, who hears of a wish, which questions may be answered."""

from typing import Any

import pytest

from tests.helpers.raft.script import Scene
from wakeq.actors.log.leadership import (
    HAND_OVER_AGAIN_MS,
    HANG_ELECTIONS,
    SKIP_AWAITED_MS_MAX,
    WISH_ELECTIONS,
    Leadership,
)
from wakeq.actors.log.members import PeerTable
from wakeq.protocol.errors import BadField, NotLeader
from wakeq.protocol.queue.orders import Peek
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.messages import Append, HeartbeatAnswer, Transfer
from wakeq.protocol.wire.peer.frames import Entries

NOT_LEADER = Refusal("NOT_LEADER", "another node leads")


class Hearing:
    def __init__(self) -> None:
        self.session = self
        self.heard: list[Any] = []

    def tell(self, answer: Any) -> None:
        self.heard.append(answer)


def cores(*commands: str) -> dict[int, Core]:
    """Return the cores of a cluster of three that node 1 leads, after some commands."""
    scene = Scene()
    for command in ("cluster 1 2 3", "lead 1", *commands):
        scene.play(command)
    return {node: actor.core for node, actor in scene.actors.items()}


def leadership_of(core: Core, *connected: int) -> Leadership:
    table = PeerTable(core.me.node_id, None)
    table.connected = dict.fromkeys(connected)  # type: ignore[assignment]  # who it is, nobody asks here
    return Leadership(core, table)


def question() -> Peek:
    return Peek(Hearing(), "q", "ready", 1)


# --- transfer --------------------------------------------------------------------------------------------------------


def test_leader_with_the_most_connected_log_is_chosen() -> None:
    core = cores("propose 1 3", "deliver 1>2", "deliver 2>1")[1]
    assert core.leader().peers[2].match > core.leader().peers[3].match

    assert leadership_of(core, 2, 3).transfer(None) == 2


def test_only_a_connected_voter_can_take_over() -> None:
    core = cores()[1]

    assert leadership_of(core, 3).transfer(None) == 3
    with pytest.raises(BadField, match="no other voter is connected"):
        leadership_of(core).transfer(None)


def test_node_that_does_not_lead_transfers_nothing() -> None:
    with pytest.raises(NotLeader):
        leadership_of(cores()[2], 1, 3).transfer(None)


def hanging() -> Core:
    """Return a leader whose disk lacks what the others have."""
    return cores("hold 1", "propose 1 3", "settle")[1]


def test_hanging_leader_is_replaced_after_a_while_and_not_again_at_once() -> None:
    core = hanging()
    leadership = leadership_of(core, 2, 3)
    long_ms = HANG_ELECTIONS * core.settings.election_ms

    assert leadership.heir_while_disk_hangs(long_ms - 1, 0) is None
    assert leadership.heir_while_disk_hangs(long_ms, 0) == 2
    leadership.lose(long_ms, 0, NOT_LEADER)
    assert leadership.heir_while_disk_hangs(long_ms, HAND_OVER_AGAIN_MS - 1) is None
    assert leadership.heir_while_disk_hangs(long_ms, HAND_OVER_AGAIN_MS) == 2


def test_leader_that_loses_for_another_reason_may_be_replaced_at_once() -> None:
    core = hanging()
    leadership = leadership_of(core, 2, 3)

    leadership.lose(0, 0, NOT_LEADER)

    assert leadership.heir_while_disk_hangs(HANG_ELECTIONS * core.settings.election_ms, 1) == 2


def test_follower_whose_disk_hangs_has_no_heir() -> None:
    core = cores()[2]

    assert leadership_of(core, 1, 3).heir_while_disk_hangs(1_000_000, 0) is None


def test_leader_yields_once_because_of_an_entry() -> None:
    leadership = leadership_of(cores()[1], 2)

    assert [leadership.yields_because_of(index) for index in (7, 7, 8)] == [True, False, True]
    assert not leadership_of(cores()[1]).yields_because_of(7), "nobody could take over"


def test_node_waits_for_another_leader_to_have_an_entry_skipped_anew_when_there_was_none() -> None:
    leadership = leadership_of(cores()[2], 1)

    assert leadership.waits_for_skip(7, 0)
    assert leadership.waits_for_skip(7, SKIP_AWAITED_MS_MAX)
    assert not leadership.waits_for_skip(7, SKIP_AWAITED_MS_MAX + 1)
    leadership.no_other_leads(7)
    assert leadership.waits_for_skip(7, SKIP_AWAITED_MS_MAX + 1)


# --- wishes ----------------------------------------------------------------------------------------------------------


def test_wish_is_passed_on_to_the_leader_and_answered_when_another_node_leads() -> None:
    core, asker = cores()[2], Hearing()
    leadership = leadership_of(core, 1, 3)

    leadership.pass_on_wish(asker, 3, 1, 0)
    ready = core.ready()
    leadership.answer_wishes(1)
    assert asker.heard == []
    core.leader_id = 3
    leadership.answer_wishes(2)
    leadership.answer_wishes(3)

    assert ready is not None
    assert [(type(message), message.receiver) for message in ready.messages] == [(Transfer, 1)]
    assert asker.heard == [{"transferring_to": 3}]


def test_wish_that_does_not_come_true_is_refused_after_a_while() -> None:
    core, asker = cores()[2], Hearing()
    leadership = leadership_of(core, 1, 3)
    until_ms = WISH_ELECTIONS * core.settings.election_ms

    leadership.pass_on_wish(asker, None, 1, 0)
    leadership.answer_wishes(until_ms - 1)
    before = list(asker.heard)
    leadership.answer_wishes(until_ms)

    assert before == []
    assert [refusal.code for refusal in asker.heard] == ["NO_QUORUM"]


@pytest.mark.parametrize("heir", [1, 9])
def test_wish_for_the_leader_or_a_stranger_is_refused(heir: int) -> None:
    with pytest.raises(BadField, match=f"node {heir} cannot take over"):
        leadership_of(cores()[2], 1, 3).pass_on_wish(Hearing(), heir, 1, 0)


# --- questions -------------------------------------------------------------------------------------------------------


def test_questions_of_one_barrier_are_taken_together() -> None:
    core = cores()[1]
    leadership, asked = leadership_of(core, 2, 3), [question(), question()]

    assert [leadership.ask(each) for each in asked] == [True, True]
    barrier = core.leader().round

    assert leadership.take_questions(barrier) == asked


def test_node_that_does_not_lead_keeps_no_question() -> None:
    assert not leadership_of(cores()[2]).ask(question())


def test_open_questions_are_refused_when_leadership_is_lost() -> None:
    leadership, asked = leadership_of(cores()[1], 2, 3), question()
    leadership.ask(asked)

    leadership.lose(0, 0, NOT_LEADER)
    leadership.lose(0, 0, NOT_LEADER)

    assert asked.asker.heard == [NOT_LEADER]  # type: ignore[attr-defined]


# --- a full disk -----------------------------------------------------------------------------------------------------


def test_node_without_room_takes_no_entries_and_counts_in_no_majority() -> None:
    leadership = leadership_of(cores()[2], 1, 3)
    leadership.is_out_of_room = True
    append = Append(1, 2, 10, 1, 1, 0, 0, 1, ((1, 1),), 0)
    answer = HeartbeatAnswer(2, 1, 20, 1, 1, 5)

    assert leadership.heard([Entries(append, [b"e"]), answer]) == [answer]
    assert leadership.said([append, answer]) == [append]


def test_node_that_takes_part_hears_and_says_everything() -> None:
    leadership = leadership_of(cores()[2], 1, 3)
    answer = HeartbeatAnswer(2, 1, 20, 1, 1, 5)

    assert leadership.heard([answer]) == [answer]
    assert leadership.said([answer]) == [answer]
