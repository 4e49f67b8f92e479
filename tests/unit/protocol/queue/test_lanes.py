"""Lanes: publishes of many connections become few entries, and each connection's stay in its order."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.doors.lanes import HandLobby, HandSession, ack_slots
from tests.helpers.examples import examples
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Draft, Publish
from wakeq.protocol.queue.lanes import (
    Acking,
    Acks,
    AckSeveral,
    AckTicket,
    AckTickets,
    AnswerOnCommit,
    Filed,
    Lanes,
    Run,
    Tickets,
    Whole,
    apart,
)
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.wire.slots import MISSING, Slot

WORKER, WEBSOCKET = 1, 2
BUSY = Refusal("BUSY", "not now")

connections = st.integers(0, 3)
kinds = st.sampled_from(["plain", "plain", "plain", "with priority", "numbered", "whole"])


class Line:
    """One connection of the property: what it has published, in its order."""

    def __init__(self, number: int) -> None:
        self.session = HandSession(number=number + 1, door_kind=WORKER if number < 3 else WEBSOCKET)
        self.published: list[tuple[Slot, bytes]] = []
        self.ordinal = 0

    def publish(self, filed: Filed, kind: str, session_id: str) -> None:
        slot = Slot(self.session, None)
        body = f"{self.session.number}-{len(self.published)}".encode()
        if kind == "whole":
            filed.publish_whole(slot, Publish("q", [Draft(body)], id="i"))
        elif kind == "numbered":
            self.ordinal += 1
            filed.publish(slot, Draft(body), session_id, self.ordinal, is_alike=True)
        else:
            draft = Draft(body, priority=5 if kind == "with priority" else 0)
            filed.publish(slot, draft, "", 0, is_alike=kind == "plain")
        self.published.append((slot, body))


def rows(filed: Filed) -> list[tuple[Slot, bytes]]:
    """Return slot and body of each publish in the order in which they will be stored."""
    found: list[tuple[Slot, bytes]] = []
    for one in filed.publishes:
        if isinstance(one, Run):
            found += [(slot, draft.body) for slot, draft in zip(one.slots, one.drafts, strict=True)]
        else:
            found += [(one.slot, draft.body) for draft in one.entry.drafts]
    return found


@settings(max_examples=examples(300))
@given(steps=st.lists(st.tuples(connections, kinds, st.sampled_from("st")), max_size=40))
def test_publishes_of_each_connection_are_stored_in_its_order_whatever_others_do(
    steps: list[tuple[int, str, str]],
) -> None:
    filed, lines = Filed(), [Line(number) for number in range(4)]

    for who, kind, session_id in steps:
        lines[who].publish(filed, kind, session_id)

    stored = rows(filed)
    assert len(stored) == len(steps), "each publish is in one entry"
    for line in lines:
        assert [row for row in stored if row[0].session is line.session] == line.published
    for place, one in enumerate(filed.publishes):
        assert one.position == place
        if isinstance(one, Run):
            assert len(one.slots) == len(one.drafts)
            assert {slot.session.door_kind for slot in one.slots} == {one.door}
            assert len(one.ordinals) == (len(one.drafts) if one.session_id else 0)
            assert one.is_alike == all(not draft.priority for draft in one.drafts)
    assert sorted(map(id, filed.slots())) == sorted(id(slot) for line in lines for slot, _ in line.published)


@settings(max_examples=examples(100))
@given(steps=st.lists(st.tuples(connections, st.sampled_from("st")), max_size=30))
def test_numbers_of_a_session_rise_within_its_entries(steps: list[tuple[int, str]]) -> None:
    filed, lines = Filed(), [Line(number) for number in range(4)]

    for who, _ in steps:
        lines[who].publish(filed, "numbered", f"session of {who}")

    for one in filed.publishes:
        assert isinstance(one, Run)
        assert one.ordinals == sorted(one.ordinals)
    assert len(filed.publishes) == len({who for who, _ in steps}), "one run for each session"


def test_plain_publishes_of_all_connections_are_one_run() -> None:
    filed, lines = Filed(), [Line(number) for number in range(3)]

    for _ in range(5):
        for line in lines:
            line.publish(filed, "plain", "")

    (run,) = filed.publishes
    assert isinstance(run, Run)
    assert len(run.drafts) == 15
    assert run.is_alike


def test_plain_publish_behind_an_own_numbered_one_opens_a_run_that_others_join() -> None:
    filed, one, other = Filed(), Line(0), Line(1)

    one.publish(filed, "plain", "")
    one.publish(filed, "numbered", "s")
    other.publish(filed, "plain", "")
    one.publish(filed, "plain", "")
    other.publish(filed, "plain", "")

    assert [[draft.body for draft in run.drafts] for run in filed.publishes if isinstance(run, Run)] == [
        [b"1-0", b"2-0"], [b"1-1"], [b"1-2", b"2-1"],
    ]  # fmt: skip


@pytest.mark.parametrize("first", ["whole", "plain", "numbered"])
def test_publish_that_is_a_whole_closes_all_runs(first: str) -> None:
    filed, one, other, third = Filed(), Line(0), Line(1), Line(2)
    one.publish(filed, first, "s")
    before = len(filed.publishes)

    other.publish(filed, "whole", "")
    third.publish(filed, "plain", "")
    third.publish(filed, "numbered", "s")

    assert [type(publish) for publish in filed.publishes[before:]] == [Whole, Run, Run]


def test_publishes_of_two_doors_are_apart() -> None:
    filed, tcp, websocket = Filed(), Line(0), Line(3)

    for line in (tcp, websocket, tcp, websocket):
        line.publish(filed, "plain", "")

    assert [(run.door, len(run.drafts)) for run in filed.publishes if isinstance(run, Run)] == [
        (WORKER, 2), (WEBSOCKET, 2),
    ]  # fmt: skip


# --- acknowledgements ------------------------------------------------------------------------------------------------


def test_acknowledgements_are_a_column_for_each_door_and_keep_the_order_of_each_connection() -> None:
    filed, tcp, websocket = Filed(), HandSession(), HandSession(door_kind=WEBSOCKET)
    several = AckSeveral(["c", "d"], [ANY_TOKEN] * 2, [], Slot(tcp, None))

    filed.acknowledge(Slot(tcp, None), "a", (1, 2))
    filed.acknowledge(Slot(tcp, None), "b", ANY_TOKEN)
    filed.acks.append(several)
    filed.acknowledge(Slot(tcp, None), "e", ANY_TOKEN)
    filed.acknowledge(Slot(websocket, None), "f", ANY_TOKEN)

    assert [acks.uids for acks in filed.acks] == [["a", "b"], ["c", "d"], ["e"], ["f"]]
    assert [acks.door for acks in filed.acks if isinstance(acks, Acks)] == [WORKER, WORKER, WEBSOCKET]
    assert filed.acks[0].tokens == [(1, 2), ANY_TOKEN]
    assert len(ack_slots(filed)) == 5


# --- lanes -----------------------------------------------------------------------------------------------------------


def test_filed_commands_are_taken_once() -> None:
    lanes = Lanes("q")
    assert lanes.take() is None

    lanes.filed = filed = Filed()

    assert lanes.take() is filed
    assert lanes.take() is None
    assert lanes.filed is None


def test_commands_filed_in_lanes_are_all_refused_through_their_slots() -> None:
    lobby = HandLobby()
    session = HandSession(lobby)
    session.say(
        {"cmd": "FET", "qname": "q"},
        {"cmd": "PUB", "qname": "q", "message": "1"},
        {"cmd": "PUB", "qname": "q", "messages": ["2", "3"]},
        {"cmd": "ACK", "qname": "q", "uid": "a"},
        {"cmd": "ACK", "qname": "q", "uids": ["b", "c"]},
    )

    for slot in lobby.take("q").slots():
        slot.tell(BUSY)

    assert [reply["err"] for reply in session.hear()] == ["BUSY"] * 5


# --- tickets ---------------------------------------------------------------------------------------------------------


def slots(count: int, *sessions: HandSession) -> list[Slot]:
    return [Slot(sessions[place % len(sessions)], place) for place in range(count)]


@pytest.mark.parametrize("make", [Tickets, lambda some: AckTickets(some, [])], ids=["publishes", "acks"])
def test_refusal_of_a_shared_entry_refuses_each_of_its_commands(make: Any) -> None:
    some = slots(3, HandSession())

    make(some).tell(BUSY)

    assert [slot.outcome for slot in some] == [BUSY] * 3


def test_refused_acknowledgements_keep_their_messages_leased() -> None:
    kept: list[str] = []
    one, many = slots(1, HandSession()), slots(2, HandSession())

    AckTicket(one[0], lambda: kept.append("one")).tell(BUSY)
    AckTickets(many, [lambda: kept.append("many"), lambda: kept.append("of a later round")]).tell(BUSY)

    assert kept == ["one", "many", "of a later round"]


def test_acknowledgement_that_has_its_outcome_keeps_nothing_leased() -> None:
    kept: list[str] = []
    (slot,) = slots(1, HandSession())

    AckTicket(slot, lambda: kept.append("one")).tell(Outcome("q", 7, [0]))

    assert slot.outcome == Outcome("q", 7, [0])
    assert kept == []


def test_answer_that_waits_for_its_commit_is_not_given_when_that_is_refused() -> None:
    (slot,) = slots(1, HandSession())

    AnswerOnCommit(slot, ["deliveries"], None).tell(BUSY)

    assert slot.outcome is BUSY


# --- what waits for the next write grows with each round -------------------------------------------------------------


def test_publishes_of_a_later_round_join_a_run_behind_earlier_ones() -> None:
    first, second, one, other = Filed(), Filed(), Line(0), Line(1)
    for filed, kind in ((first, "plain"), (second, "with priority")):
        one.publish(filed, kind, "")
        other.publish(filed, "plain", "")
    (run,), (more,) = first.publishes, second.publishes
    assert isinstance(run, Run)
    assert isinstance(more, Run)

    run.join(more)

    assert [draft.body for draft in run.drafts] == [b"1-0", b"2-0", b"1-1", b"2-1"]
    assert [slot.session.number for slot in run.slots] == [1, 2, 1, 2]
    assert not run.is_alike


def test_numbers_of_a_session_stay_beside_their_messages_when_a_later_round_joins() -> None:
    runs = []
    line = Line(0)
    for _ in range(2):
        line.publish(filed := Filed(), "numbered", "s")
        runs += filed.publishes

    runs[0].join(runs[1])

    assert (runs[0].ordinals, len(runs[0].drafts)) == ([1, 2], 2)


def test_foreign_uids_of_a_later_round_stay_beside_their_acknowledgements() -> None:
    first, second = slots(2, HandSession()), slots(2, HandSession())
    acking = Acking(WORKER, 7, [1, -1], [(1, 1), (1, 2)], {1: "x"}, list(first), [])

    acking.join(Acking(WORKER, 7, [-1, 4], [(1, 3), (1, 4)], {0: "y"}, second, []))

    assert acking.numbers == [1, -1, -1, 4]
    assert acking.tokens == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert acking.foreign == {1: "x", 2: "y"}
    assert list(map(id, acking.slots)) == list(map(id, [*first, *second]))


# --- entries of many connections, taken apart ------------------------------------------------------------------------


def test_refusals_of_acknowledgements_of_several_rounds_keep_the_messages_of_all_leased() -> None:
    kept: list[int] = []
    first, second = ([Slot(HandSession(number=number), "ACK")] for number in (1, 2))
    acking = Acking(WORKER, 7, [1], [(1, 1)], {}, first, [lambda: kept.append(1)])

    acking.join(Acking(WORKER, 7, [2], [(1, 2)], {}, second, [lambda: kept.append(2)]))
    AckTickets(acking.slots, acking.keep_leased).tell(Refusal("BAD_FIELD", "why"))

    assert kept == [1, 2]


def test_shared_publish_is_taken_apart_into_one_for_each_connection() -> None:
    first, second = HandSession(number=11), HandSession(number=12)
    some = slots(5, first, second)
    drafts = [Draft(str(place).encode(), priority=place) for place in range(5)]
    entry = Publish("q", drafts, door=WORKER, workers=[11, 12, 11, 12, 11], alike=False)

    parts = apart(entry, Tickets(some))

    entries = [part.entry for part in parts]
    assert [(each.worker, [draft.body for draft in each.drafts]) for each in entries] == [  # type: ignore[union-attr]
        (11, [b"0", b"2", b"4"]), (12, [b"1", b"3"]),
    ]  # fmt: skip
    assert [[slot.command for slot in part.reply_to.slots] for part in parts] == [[0, 2, 4], [1, 3]]
    assert [(each.queue, each.door, each.workers) for each in entries] == [("q", WORKER, ())] * 2  # type: ignore[union-attr]


def test_shared_publish_of_a_session_keeps_the_number_of_each_message() -> None:
    first, second = HandSession(number=11), HandSession(number=12)
    entry = Publish("q", [Draft(b"a"), Draft(b"b"), Draft(b"c")], session="s", ordinals=[4, 5, 6])

    parts = apart(entry, Tickets(slots(3, first, second)))

    assert [(part.entry.session, list(part.entry.ordinals)) for part in parts] == [("s", [4, 6]), ("s", [5])]  # type: ignore[union-attr]


def test_shared_acknowledgement_is_taken_apart_with_its_foreign_uids() -> None:
    first, second = HandSession(number=11), HandSession(number=12)
    kept: list[bool] = []
    entry = Ack(
        "q", 7, [1, -1, 3, -1], [(1, 1), (1, 2), (1, 3), (1, 4)], foreign={1: "x", 3: "y"}, workers=[11, 12] * 2
    )

    parts = apart(entry, AckTickets(slots(4, first, second), [lambda: kept.append(True)]))

    made = [part.entry for part in parts if isinstance(part.entry, Ack)]
    assert [(part.numbers, part.tokens, part.foreign, part.worker) for part in made] == [
        ([1, 3], [(1, 1), (1, 3)], {}, 11), ([-1, -1], [(1, 2), (1, 4)], {0: "x", 1: "y"}, 12),
    ]  # fmt: skip
    parts[0].reply_to.tell(BUSY)
    assert kept == [True]


@pytest.mark.parametrize(
    ("entry", "ticket"),
    [
        (Publish("q", [Draft(b"a"), Draft(b"b")]), Tickets(slots(2, HandSession()))),
        (Publish("q", [Draft(b"a")]), Slot(HandSession(), None)),
        (Publish("q", [Draft(b"a")]), None),
    ],
    ids=["of one connection", "a whole", "of nobody"],
)
def test_entry_that_is_not_shared_is_not_taken_apart(entry: Publish, ticket: Any) -> None:
    assert apart(entry, ticket) == []


def test_new_slot_has_no_outcome() -> None:
    assert [slot.outcome for slot in slots(2, HandSession())] == [MISSING] * 2
