"""Core: its demands on the driver, and its bounds.  The scripts prove its behaviour."""

from typing import Any

import msgspec
import pytest

from tests.helpers.raft.script import Scene
from wakeq.protocol.errors import NotLeader
from wakeq.protocol.raft.core import LIVES_MAX, OUTBOX_MESSAGES_MAX, TERM_JUMP_MAX, Core
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config, Member, config_of
from wakeq.protocol.raft.messages import (
    AnyMessage,
    Append,
    AppendAnswer,
    Disowned,
    HardState,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    Ready,
    RequestVote,
    SnapshotOffer,
    VoteAnswer,
)
from wakeq.protocol.raft.settings import Me, Settings

SETTINGS = Settings(election_ms=1000, heartbeat_ms=100)


def core_of(voters: list[int], log: LogView | None = None) -> Core:
    config = Config(tuple(Member(node, node) for node in voters), founded=True)
    return Core(
        Me(1, 1, 1),
        HardState(0, None),
        log or LogView(),
        [(0, config)],
        committed=0,
        settings=SETTINGS,
        chance=lambda: 0.0,
        now_ms=0,
    )


def lone_leader() -> Core:
    core = core_of([1])
    core.tick(0)
    core.saved(taken(core).save or HardState(0, None))
    assert [own.index for own in taken(core).entries] == [1]
    return core


def taken(core: Core) -> Ready:
    ready = core.ready()
    assert ready is not None
    return ready


def test_lone_voter_leads_after_one_save_and_commits_alone() -> None:
    core = lone_leader()

    first = core.propose(3, 300)

    assert (core.leads, first, core.stable(4, core.era)) == (True, 2, 4)


def test_ready_is_none_without_work() -> None:
    core = lone_leader()
    core.stable(1, core.era)
    taken(core)

    assert core.ready() is None


def test_proposal_before_own_entries_are_taken_is_a_bug() -> None:
    core = core_of([1])
    core.tick(0)
    core.saved(taken(core).save or HardState(0, None))

    with pytest.raises(AssertionError, match="take `ready` first"):
        core.propose(1)


def test_follower_refuses_proposals_and_calls_for_leaders() -> None:
    core = core_of([1, 2, 3])

    with pytest.raises(AssertionError, match="only a leader"):
        core.propose(1)
    with pytest.raises(NotLeader, match="node 1 does not lead"):
        core.leader()


def test_save_is_requested_once() -> None:
    core = core_of([1])
    core.tick(0)

    saves = [taken(core).save, core.ready()]

    assert saves == [HardState(1, 1), None]


def test_messages_wait_for_the_save_up_to_a_bound() -> None:
    core = core_of([1, 2, 3])
    for number in range(OUTBOX_MESSAGES_MAX + 10):
        core.step(Heartbeat(2, 1, 2, 1, 7, number, 0), 0)
    before = taken(core)

    core.saved(HardState(7, None))

    assert (before.save, before.messages) == (HardState(7, None), [])
    assert len(taken(core).messages) == OUTBOX_MESSAGES_MAX


def test_new_leader_has_the_clocks_of_its_voters() -> None:
    core = core_of([1, 2, 3, 4, 5])
    core.campaign(pre=False)
    core.saved(HardState(1, 1))

    core.step(VoteAnswer(2, 1, 2, 1, 1, False, False, 700, True), 0)
    core.step(VoteAnswer(3, 1, 3, 1, 1, True, True, 600, True), 0)  # an answer to the pre-vote
    core.step(VoteAnswer(4, 1, 4, 1, 1, True, False), 0)  # a node that tells no clock
    core.step(VoteAnswer(5, 1, 5, 1, 1, True, False, 500, False), 0)

    assert list(core.leader().clocks) == [(500, False)]


def test_report_beyond_the_end_of_the_log_is_a_bug() -> None:
    core = lone_leader()

    with pytest.raises(AssertionError, match="the log ends with 1"):
        core.stable(2, core.era)


def test_follower_has_caught_up_once_it_has_all_that_the_leader_had_committed() -> None:
    core = core_of([1, 2, 3])
    steps = []
    for last_index, commit in ((2, 5), (5, 5), (6, 9)):
        core.step(Append(2, 1, 2, 1, 1, 0, 0, last_index, ((1, 1),), commit), 0)
        assert isinstance(core.role, Follower)
        steps.append(core.role.has_caught_up)

    assert steps == [False, True, True]


def test_match_with_one_leader_is_not_acknowledged_to_the_next() -> None:
    """Entries 1 to 3 came from the leader of term 1 and are not on disk; the leader of term 2 has sent entry 1 only."""
    core = core_of([1, 2, 3])
    core.step(Append(2, 1, 2, 1, 1, 0, 0, 3, ((1, 1),), 0), 0)
    core.saved(taken(core).save or HardState(0, None))
    core.step(Append(3, 1, 3, 1, 2, 0, 0, 1, ((1, 1),), 0), 0)
    core.saved(taken(core).save or HardState(0, None))

    core.stable(3, core.era)

    assert [message.match for message in taken(core).messages] == [1]


def test_acknowledgement_of_a_stranger_or_another_disk_does_not_count() -> None:
    scene = Scene()
    for command in ("cluster 1 2 3", "lead 1", "propose 1", "drop"):
        scene.play(command)
    core = scene.actors[1].core

    core.step(AppendAnswer(9, 1, 90, 1, core.term, 2), 2_000)  # perhaps a node that was removed
    core.step(AppendAnswer(2, 1, 21, 2, core.term, 2), 2_000)
    replies, committed = taken(core).messages, core.commit
    core.step(AppendAnswer(2, 1, 20, 1, core.term, 2), 2_000)

    assert [reply.disowned for reply in replies if isinstance(reply, Disowned)] == [21]
    assert (committed, core.commit) == (1, 2)


def test_report_about_truncated_entries_is_ignored() -> None:
    """Entries of term 1 are submitted to the disk in term 2, and replaced in that term."""
    core = core_of([1, 2, 3])
    core.step(Append(2, 1, 2, 1, 1, 0, 0, 3, ((1, 1),), 0), 0)
    core.step(Heartbeat(3, 1, 3, 1, 2, 1, 0), 0)
    core.saved(taken(core).save or HardState(0, None))
    taken(core)
    era = core.era
    core.step(Append(3, 1, 3, 1, 2, 1, 1, 3, ((2, 2),), 0), 0)

    core.stable(3, era)
    before = core.ready()
    core.stable(3, core.era)

    assert before is None
    assert [message.match for message in taken(core).messages] == [3]


def test_append_is_ignored_while_an_image_is_installed() -> None:
    core = core_of([1, 2, 3])
    core.step(SnapshotOffer(2, 1, 2, 1, 1, 5, 1, core.members.config, 77), 0)
    core.saved(taken(core).save or HardState(0, None))
    restore = core.fetched(77)

    write = core.step(Append(2, 1, 2, 1, 1, 0, 0, 3, ((1, 1),), 0), 0)
    core.restored()

    assert restore is not None
    assert write is None
    assert (core.log.first_index, core.committed) == (6, 5)


def messages() -> list[AnyMessage]:
    header = (1, 2, 3, 4, 5)
    kinds: Any = msgspec.inspect.type_info(AnyMessage).types  # type: ignore[attr-defined]
    samples: dict[Any, Any] = {int: 6, bool: True}
    made = []
    for kind in (info.cls for info in kinds):
        values = []
        for field in msgspec.structs.fields(kind)[len(header) :]:
            config = config_of([1, 2], [3])
            others = {"config": config, "configs": ((7, config),), "runs": ((1, 1), (4, 2)), "acknowledged": ((3, 6),)}
            if field.name in others:
                values.append(others[field.name])
            else:
                values.append(samples.get(field.type, 6))
        made.append(kind(*header, *values))
    return made


@pytest.mark.parametrize("message", messages(), ids=lambda message: type(message).__name__)
def test_message_survives_the_wire(message: Message) -> None:
    data = msgspec.msgpack.encode(message)

    assert msgspec.msgpack.decode(data, type=AnyMessage) == message


def test_messages_carry_no_moment_of_their_sender() -> None:
    names = {field.name for message in messages() for field in msgspec.structs.fields(type(message))}

    moments = {name for name in names if name.endswith(("_ms", "_s", "_at"))}
    assert moments == {"clock_ms"}  # the cluster clock, which is the same for all nodes
    assert HeartbeatAnswer in map(type, messages())


def test_restart_without_the_members_in_its_log_is_a_bug() -> None:
    """It would send those entries without the change of the members."""
    with pytest.raises(AssertionError, match="members that stand in the log are missing"):
        Core(
            Me(1, 1, 1),
            HardState(1, None),
            LogView(2, 1, [(3, 1)], 9),
            [(5, config_of([1]))],
            committed=5,
            settings=SETTINGS,
            chance=lambda: 0.0,
            now_ms=0,
        )


def leader_of_three() -> Core:
    """Return node 1, which leads in term 1 with one entry and one round of heartbeats."""
    core = core_of([1, 2, 3])
    core.tick(2000)
    core.step(VoteAnswer(2, 1, 2, 1, 1, True, True), 2000)
    core.saved(taken(core).save or HardState(0, None))
    core.step(VoteAnswer(2, 1, 2, 1, 1, True), 2000)
    assert core.leads
    assert core.log.last_index == 1
    return core


OF_TWO = (2, 1, 2, 1, 1)  # sender, receiver, disk, incarnation and term of the sender


@pytest.mark.parametrize(
    "message",
    [
        AppendAnswer(*OF_TWO, 2),
        AppendAnswer(*OF_TWO, 1 << 40),
        AppendAnswer(*OF_TWO, 0, 2),
        HeartbeatAnswer(*OF_TWO, 2),
        Append(*OF_TWO, 0, 0, 1, ((1, 1),), 0),
        Heartbeat(*OF_TWO, 1, 0),
        SnapshotOffer(*OF_TWO, 9, 1, config_of([2]), 5),
        RequestVote(2, 1, 2, 1, 2 + TERM_JUMP_MAX, 1, 1),
        Heartbeat(2, 1, 2, 1, (1 << 48) - 1, 1, 0),
    ],
)
def test_impossible_claim_is_doubted_by_a_leader(message: AnyMessage) -> None:
    assert leader_of_three().doubt(message)


@pytest.mark.parametrize(
    "message",
    [
        AppendAnswer(*OF_TWO, 1),
        AppendAnswer(*OF_TWO, 0, 1, 1, 0),
        HeartbeatAnswer(*OF_TWO, 1),
        HeartbeatAnswer(2, 1, 2, 1, 0, 99),  # of an earlier term, for which it is refused anyway
        RequestVote(2, 1, 2, 1, TERM_JUMP_MAX, 1 << 40, 1),
        Append(2, 1, 2, 1, 2, 1 << 40, 2, 1 << 40, (), 1 << 40),  # this node was offline for long
    ],
)
def test_possible_claim_is_not_doubted(message: AnyMessage) -> None:
    assert leader_of_three().doubt(message) == ""


def test_blank_node_accepts_any_term() -> None:
    """It is joining a cluster that is older than its data."""
    message = Heartbeat(2, 1, 2, 1, 2 + TERM_JUMP_MAX, 1, 0)

    assert core_of([1, 2, 3]).doubt(message) == ""


def test_term_far_ahead_is_accepted_in_steps_if_it_is_repeated() -> None:
    """Otherwise a few frames of a stranger could set two nodes so far apart that they never agree on a term again."""
    core = leader_of_three()
    span_ms = SETTINGS.election_ms
    far = RequestVote(2, 1, 2, 1, 3 * TERM_JUMP_MAX, 1, 1)

    doubts = []
    for at_ms in (2_000, 2_000, 2_000 + span_ms - 1, 2_000 + span_ms, 2_000 + span_ms):
        core.now_ms = at_ms
        doubts.append(bool(core.doubt(far)))

    assert doubts == [True, True, True, True, False]


def test_impossible_term_is_doubted_for_years() -> None:
    core = leader_of_three()

    for second in range(1_000):
        core.now_ms = 2_000 + second * 1_000
        assert core.doubt(Heartbeat(2, 1, 2, 1, (1 << 48) - 1, 1, 0))


def test_node_that_accepted_any_term_accepts_the_next_one() -> None:
    core = core_of([1, 2, 3])
    far = 3 * TERM_JUMP_MAX
    core.step(Heartbeat(2, 1, 2, 1, far, 1, 0), 0)

    assert core.doubt(RequestVote(3, 1, 3, 1, far + 1, 1, 1)) == ""
    assert core.doubt(RequestVote(3, 1, 3, 1, far + TERM_JUMP_MAX + 1, 1, 1))


def test_incarnations_of_strangers_are_forgotten() -> None:
    core = core_of([1, 2, 3])
    core.step(Heartbeat(2, 1, 2, 5, 1, 1, 0), 0)

    for number in range(3 * LIVES_MAX):
        core.step(RequestVote(1000 + number, 1, number, 7, 1, 1, 1), 0)

    assert len(core._incarnations) <= LIVES_MAX
    assert core._incarnations[2, 2] == 5
