"""Conversation: commands in; slots, lanes and replies out.  The numbers are those of the rules in rounds.md."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.helpers.doors.lanes import (
    MESSAGE_BYTES_MAX,
    HandLobby,
    HandSession,
    Json,
    ack_slots,
    bodies,
    delivery,
    publish_all,
    publish_slots,
)
from tests.helpers.steps import peak_bytes, steps
from wakeq.protocol.errors import Forbidden, NotLeader
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    CreateQueue,
    DeleteQueue,
    PurgeQueue,
    Result,
    Stash,
    Unstash,
    UpdateQueue,
)
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.lanes import Acks, AckSeveral, Filed, Run, Whole
from wakeq.protocol.queue.outcomes import Outcome, Refusal, Seen
from wakeq.protocol.wire.slots import MISSING, Slot
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker import conversation as module
from wakeq.protocol.wire.worker.answers import draft_of
from wakeq.protocol.wire.worker.blocks import pack
from wakeq.protocol.wire.worker.commands import COMMANDS
from wakeq.protocol.wire.worker.conversation import BAD_LINES_MAX, GOOD_FOR_BAD
from wakeq.protocol.wire.worker.identity import NOT_SAID, facts_of

PING: Json = {"cmd": "PING"}
NOT_LEADER = Refusal(NotLeader.code, "node 2 leads", "node-2:2601", "node-2:2680")


PUBLISHES: list[Json] = [
    {"message": "text"},
    {"msg": "text of the real clients"},
    {"message": "first", "msg": "second"},
    {"message": ""},
    {"message": "é" * 5},
    {"message": "m", "qname": "another"},
    {"message": "m", "priority": -3, "delay": 2, "expires": 4, "timeout": 5},
    {"message": "m", "id": "once"},
    {"message": "m", "n": 1},
    {"message": "aGk=", "enc": "b64"},
    {"message": "m", "headers": {"a": "b"}, "priority": 4},
]


@pytest.fixture
def lobby() -> HandLobby:
    return HandLobby()


@pytest.fixture
def session(lobby: HandLobby) -> HandSession:
    return HandSession(lobby)


def pub(name: str = "q", message: str = "m", **fields: Any) -> Json:
    return {"cmd": "PUB", "qname": name, "message": message, **fields}


def fet(name: str = "q", **fields: Any) -> Json:
    return {"cmd": "FET", "qname": name, **fields}


def ack(name: str = "q", uid: str = "u", **fields: Any) -> Json:
    return {"cmd": "ACK", "qname": name, "uid": uid, **fields}


def of(cmd: str, name: str = "q", **fields: Any) -> Json:
    return {"cmd": cmd, "qname": name, **fields}


def follow_up(*names: str, on: str = "q") -> Json:
    """An acknowledgement on one queue that publishes to others."""
    return ack(on, publish=[{"qname": name, "message": "next"} for name in names])


def is_empty(filed: Filed) -> bool:
    return not (filed.reads or filed.acks or filed.publishes or filed.orders)


def block_of(*messages: str) -> Json:
    columns = pack([("body", [message.encode() for message in messages])])
    return {"rows": len(messages), "columns": ["body"], "block": b64encode(columns).decode()}


# --- where each command is filed ---------------------------------------------------------------------------------


def test_commands_of_one_read_are_filed_in_the_lanes_of_their_queues(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("a", "1"), pub("b", "2"), ack("a", "u1"), pub("a", "3"), ack("b", "u2"), fet("c"))

    a, b, c = (lobby.take(name) for name in "abc")
    assert (bodies(a), bodies(b)) == ([[b"1", b"3"]], [[b"2"]])
    assert [acks.uids for acks in (*a.acks, *b.acks)] == [["u1"], ["u2"]]
    assert [slot.command.qname for slot in c.reads] == ["c"]
    assert lobby.woken == ["a", "b", "c"], "each queue is woken once"


@pytest.mark.parametrize("fields", PUBLISHES)
def test_publish_of_one_message_is_filed_as_the_draft_that_the_long_way_makes(
    session: HandSession, lobby: HandLobby, fields: Json
) -> None:
    command = {"cmd": "PUB", "qname": "q"} | fields
    (decoded,) = wire.decode(json.dumps(command).encode() + b"\n")
    session.conversation.session_id = "numbered"

    session.say(command)

    (filed,) = lobby.take(command["qname"]).publishes
    (draft,) = filed.drafts if isinstance(filed, Run) else filed.entry.drafts
    assert draft == draft_of(wire.contents_of(decoded)[0], MESSAGE_BYTES_MAX)


@pytest.mark.parametrize("fields", [{}, {"headers": {"a": "b"}}], ids=["plain", "with headers"])
def test_message_over_the_limit_is_refused_and_not_filed(session: HandSession, lobby: HandLobby, fields: Json) -> None:
    session.say(pub("q", "é" * (MESSAGE_BYTES_MAX // 2 + 1), **fields))

    (reply,) = session.hear()
    assert f"102 bytes, the limit is {MESSAGE_BYTES_MAX}" in reply["detail"]
    assert lobby.take("q").publishes == []


def test_commands_have_a_slot_each(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet(), pub(), pub(), ack(), ack())

    filed = lobby.take("q")

    slots = session.conversation.slots
    assert [type(slot.command) for slot in slots] == [wire.Fet, wire.Pub, wire.Pub, wire.Ack, wire.Ack]
    assert {id(slot) for slot in slots} == set(map(id, (*publish_slots(filed), *filed.reads, *ack_slots(filed))))
    assert session.conversation.in_flight == 5
    assert session.hear() == []


ORDERS: list[tuple[Json, orders.Propose | Any]] = [
    (of("NACK", uid="u", delay=2, error="e"), (orders.Nack, ["u"], [ANY_TOKEN], 2_000, "e")),
    (of("TOUCH", uid="u", timeout=9, lease="3-4"), (orders.Touch, ["u"], [(3, 4)], 9_000)),
    (of("CREATE", max_size=3), CreateQueue),
    (of("UPDATE", max_size=3), UpdateQueue),
    (of("DROP"), DeleteQueue),
    (of("PURGE"), PurgeQueue),
    (of("UNSTASH", stashes=[["s", 1]], writer="w", epoch=1), Unstash),
    (of("STASH", stash="s", messages=["x"]), Stash),
    (of("STAGE", source="s", epoch=1), orders.Stage),
    (of("RENEW", source="s"), orders.Renew),
    (of("SETTLE", source="s", epoch=1), orders.Settle),
    (of("RELEASE", source="s"), orders.Release),
    (of("SLICE", source="s", epoch=1), orders.ReadSlice),
    (of("PEEKB"), orders.PeekBlock),
    (follow_up("other"), AckSeveral),
]


@pytest.mark.parametrize(("command", "expected"), ORDERS, ids=[command["cmd"] for command, _ in ORDERS])
def test_command_that_is_no_column_is_filed_as_an_order(
    session: HandSession, lobby: HandLobby, command: Json, expected: Any
) -> None:
    session.say(command)

    (order,) = lobby.take("q").orders

    if isinstance(expected, tuple):
        kind, *fields = expected
        assert type(order) is kind
        given = [
            order.uids,
            order.tokens,
            *([order.delay_ms, order.error] if kind is orders.Nack else [order.timeout_ms]),
        ]
        assert given == fields
    elif isinstance(order, orders.Propose):
        assert type(order.entry) is expected
        assert order.entry.queue == "q"
        assert order.asker is session.conversation.slots[0]
    else:
        assert type(order) is expected


def test_commands_of_consumers_are_filed_in_their_order(session: HandSession, lobby: HandLobby) -> None:
    session.say(of("SUB"), fet(count=3), of("ISLP"), of("UNS"), of("SUB"), of("FETB"), of("ISLP"))

    filed = lobby.take("q")

    assert filed.reads == session.conversation.slots
    assert [*filed.orders, *filed.acks, *filed.publishes] == []
    assert session.subscribed == {"q"}
    assert [slot.outcome is MISSING for slot in filed.reads] == [False, True, True, False, False, True, True]


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (of("PEEK", count=3), orders.Peek),
        (of("STATS"), orders.Stats),
        ({"cmd": "STATS"}, orders.Stats),
        ({"cmd": "LIST", "prefix": "a"}, orders.Stats),
    ],
)
def test_look_is_asked_of_the_leader(session: HandSession, lobby: HandLobby, command: Json, question: type) -> None:
    session.say(command)

    (asked,) = session.asked
    assert type(asked) is question
    assert asked.asker is session.conversation.slots[0]
    assert lobby.woken == []


def test_commands_of_the_protocol_are_all_filed_asked_for_or_answered(session: HandSession, lobby: HandLobby) -> None:
    """Each kind is filed, asked for or answered: no client waits for an answer that will not come."""
    fields: dict[str, Json] = {
        "PUBB": block_of("x"), "STASH": {"stash": "s", "messages": ["x"]}, "UNSTASH": {"stashes": [["s", 1]]},
        "STAGE": {"source": "s", "epoch": 1}, "SLICE": {"source": "s", "epoch": 1}, "RENEW": {"source": "s"},
        "SETTLE": {"source": "s", "epoch": 1}, "RELEASE": {"source": "s"},
        "ACK": {"uid": "u"}, "DEL": {"uid": "u"}, "NACK": {"uid": "u"},
        "TOUCH": {"uid": "u"}, "PUB": {"message": "x"}, "UPDATE": {"max_size": 1},
    }  # fmt: skip
    for name in COMMANDS:
        one = HandSession(HandLobby())
        queue = {} if name in ("PING", "HELLO", "LIST", "CLUSTER") else {"qname": "q"}

        one.say({"cmd": name, **queue, **fields.get(name, {})})

        (slot,) = one.conversation.slots
        assert type(slot.command) is COMMANDS[name], name
        is_filed = bool(one.lobby.woken or one.asked or one.administered)
        assert is_filed or slot.outcome is not MISSING, name


# --- rule 1: answers leave in the order of the commands ------------------------------------------------------------


def test_answer_that_comes_early_waits_for_the_answers_before_it(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("a", "1"), fet("b"), PING, pub("c", "3"))

    publish_all(lobby.take("c"))
    early = session.hear()
    publish_all(lobby.take("a"))
    first = session.words()
    lobby.take("b").reads[0].tell([delivery("x")])

    assert early == []
    assert first == ["ok"]
    assert session.words() == ["msg", "pong", "ok"]
    assert session.conversation.in_flight == 0


def test_answers_of_many_sessions_stay_apart(lobby: HandLobby) -> None:
    sessions = [HandSession(lobby, number) for number in range(1, 4)]
    for session in sessions:
        session.say(pub("q", f"by {session.number}"), fet())

    filed = lobby.take("q")
    publish_all(filed)
    heard = [session.hear() for session in sessions]

    assert bodies(filed) == [[b"by 1", b"by 2", b"by 3"]], "one run of all"
    assert [[reply["uid"] for reply in replies] for replies in heard] == [
        [f"uid of by {number}"] for number in (1, 2, 3)
    ]
    assert [slot.session.number for slot in lobby.take("q").reads] == [1, 2, 3]


def test_session_is_flushed_once_however_many_outcomes_come(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("q", "1"), pub("q", "2"), pub("q", "3"))

    publish_all(lobby.take("q"))

    assert session.dirtied == 1
    assert session.words() == ["ok"] * 3


def test_fetch_with_wait_and_cmd_id_is_answered_out_of_order(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet(wait=5, cmd_id="w"), fet("r"), fet(wait=5, cmd_id="v"), PING)
    apart, other = lobby.take("q").reads
    read = lobby.take("r").reads[0]

    other.tell([delivery("second")])
    first = session.hear()
    in_flight = session.conversation.in_flight
    read.tell(None)
    second = session.words()
    apart.tell(None)

    assert [(reply["cmd"], reply["cmd_id"]) for reply in first] == [("msg", "v")]
    assert in_flight == 3
    assert second == ["nomsg", "pong"]
    assert [(reply["cmd"], reply["cmd_id"]) for reply in session.hear()] == [("nomsg", "w")]
    assert session.conversation.in_flight == 0


def test_fetch_with_wait_and_without_cmd_id_is_answered_in_its_place(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet("a"), fet("b", wait=5))

    lobby.take("b").reads[0].tell([delivery("x")])
    early = session.hear()
    lobby.take("a").reads[0].tell(None)

    assert early == []
    assert session.words() == ["nomsg", "msg"]


# --- rule 2: publishes of one connection keep their order ----------------------------------------------------------


def test_publishes_of_each_kind_to_one_queue_stay_in_their_order(session: HandSession, lobby: HandLobby) -> None:
    session.say({"cmd": "HELLO", "session": "s"})
    session.say(
        pub(message="1"),
        pub(message="2", n=1),
        pub(message="3", n=2),
        pub(message="4"),
        pub(message="5", id="once"),
        {"cmd": "PUB", "qname": "q", "messages": ["6", "7"]},
        of("PUBB", **block_of("8", "9")),
        pub(message="10"),
    )

    filed = lobby.take("q")

    assert [body for entry in bodies(filed) for body in entry] == [str(number).encode() for number in range(1, 11)]
    assert [type(one) for one in filed.publishes] == [Run, Run, Run, Whole, Whole, Whole, Run]
    numbered = filed.publishes[1]
    assert isinstance(numbered, Run)
    assert (numbered.session_id, numbered.ordinals) == ("s", [1, 2])


def test_publish_without_priority_or_times_is_alike_and_others_are_not(session: HandSession, lobby: HandLobby) -> None:
    for fields in ({}, {"priority": 1}, {"delay": 1}, {"expires": 1}, {"timeout": 5}, {"headers": {"a": "b"}}):
        session.say(pub("alike"), pub("mixed"), pub("mixed", **fields))
        (alike,), (mixed,) = lobby.take("alike").publishes, lobby.take("mixed").publishes

        assert isinstance(alike, Run)
        assert isinstance(mixed, Run)
        assert (alike.is_alike, mixed.is_alike) == (True, not fields)


# --- rule 3: a read stands behind the last own write to its queue --------------------------------------------------

# A claim takes messages as a fetch does, and what comes behind it finds them taken.
CLAIMS: list[Json] = [
    of("STAGE", source="s", epoch=1),
    of("RENEW", source="s"),
    of("SETTLE", source="s", epoch=1),
    of("RELEASE", source="s"),
]
TAKES: list[Json] = [fet(), fet(wait=5), fet(wait=5, cmd_id=1), of("FETB"), of("ISLP"), of("PEEKB")]
LOOKS: list[Json] = [of("PEEK"), of("STATS")]
READS: list[Json] = [*TAKES, *LOOKS, of("SLICE", source="s", epoch=1), *CLAIMS]
WRITES: list[Json] = [
    pub(), pub(id="once"), of("PUBB", **block_of("x")), of("NACK", uid="u"), of("TOUCH", uid="u"), of("CREATE"),
    of("UPDATE", max_size=1), of("DROP"), of("PURGE"), follow_up("q", on="other"), follow_up("other"),
    of("STASH", stash="s", messages=["x"]), of("UNSTASH", stashes=[["s", 1]]),
]  # fmt: skip


def named(command: Json) -> str:
    return " ".join(
        [command["cmd"], command.get("qname", ""), *sorted(set(command) - {"cmd", "qname", "uid", "source"})]
    )


def is_filed(session: HandSession, command: Json) -> bool:
    """Whether a command has got to its queue, or to the leader."""
    filed = [lanes.filed for lanes in session.lobby.lanes.values() if lanes.filed is not None]
    slots = [slot for one in filed for slot in slots_of(one)] + [question.asker for question in session.asked]
    (wanted,) = wire.decode(json.dumps(command).encode() + b"\n")
    return any(slot.command == wanted for slot in slots)


def slots_of(filed: Filed) -> list[Any]:
    """Return the slot of everything that was filed and wants an answer."""
    slots: list[Any] = list(filed.slots())
    for order in filed.orders:
        owner = order.slot if isinstance(order, AckSeveral) else order.asker
        slots.append(owner if isinstance(owner, Slot) else owner._slot)
    return slots


@pytest.mark.parametrize("read", READS, ids=named)
@pytest.mark.parametrize("write", [*WRITES, *CLAIMS, *LOOKS], ids=named)
def test_read_behind_an_own_write_to_its_queue_is_filed_when_that_has_its_outcome(
    session: HandSession, lobby: HandLobby, write: Json, read: Json
) -> None:
    session.say(write)
    lobby.take("q")
    session.asked.clear()
    session.say(read)
    written = session.conversation.slots[0]
    assert not is_filed(session, read)

    written.tell(Refusal("BUSY", "not now"))
    session.send()

    assert is_filed(session, read)


@pytest.mark.parametrize("read", READS, ids=named)
@pytest.mark.parametrize(
    "before",
    [ack(), of("DEL", uid="u"), of("ACK", uids=["u", "v"]), pub("other"), of("SUB"), of("UNS"), fet(), PING],
    ids=named,
)
def test_read_behind_anything_else_is_filed_at_once(
    session: HandSession, lobby: HandLobby, before: Json, read: Json
) -> None:
    session.say(before)
    lobby.take("q")

    session.say(read)

    assert is_filed(session, read)


@pytest.mark.parametrize("read", READS, ids=named)
@pytest.mark.parametrize("claim", [*CLAIMS, *LOOKS], ids=named)
def test_read_behind_a_claim_that_stood_behind_a_write_stands_behind_the_claim(
    session: HandSession, lobby: HandLobby, claim: Json, read: Json
) -> None:
    session.say(pub(), claim, read if read != claim else {**read, "cmd_id": 7})
    publish_all(lobby.take("q"))
    session.send()
    assert is_filed(session, claim)
    assert not is_filed(session, {**read, "cmd_id": 7} if read == claim else read)

    session.conversation.slots[0].tell(Refusal("BUSY", "not now"))
    session.send()

    assert is_filed(session, {**read, "cmd_id": 7} if read == claim else read)


def test_read_of_another_connection_does_not_wait(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub())

    HandSession(lobby, 2).say(fet())

    assert len(lobby.take("q").reads) == 1


def test_reads_behind_writes_are_filed_in_their_order_also_when_a_later_write_is_done_first(
    session: HandSession, lobby: HandLobby
) -> None:
    """PUB, FET, NACK, FET: the entries of the two writes stand in the log the other way round."""
    session.say(pub(), fet(cmd_id=1), of("NACK", uid="u"), fet(cmd_id=2), fet(cmd_id=3))
    published, _, nacked, *_ = session.conversation.slots

    nacked.tell(Outcome("q", 7, [0]))
    session.send()
    early = lobby.take("q").reads
    published.tell("uid")
    session.send()

    assert early == []
    assert [slot.command.cmd_id for slot in lobby.take("q").reads] == [1, 2, 3]


def test_read_that_comes_while_another_waits_is_filed_behind_it(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(), fet(cmd_id=1))
    filed = lobby.take("q")
    publish_all(filed)  # and the session has not been flushed yet

    session.say(fet(cmd_id=2))
    early = lobby.take("q").reads
    session.send()

    assert early == []
    assert [slot.command.cmd_id for slot in lobby.take("q").reads] == [1, 2]


def test_read_waits_for_the_last_of_several_writes(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(message="1"), pub(message="2", id="i"), fet())
    first, second, _ = session.conversation.slots

    first.tell("uid")
    session.send()
    early = is_empty_of_reads(lobby)
    second.tell(Outcome("q", 7, range(2, 3)))
    session.send()

    assert early
    assert len(lobby.take("q").reads) == 1


@pytest.mark.parametrize("read", [fet(), of("STATS"), {"cmd": "LIST"}], ids=named)
def test_read_waits_for_an_earlier_write_when_the_last_one_is_done_first(
    session: HandSession, lobby: HandLobby, read: Json
) -> None:
    """A NACK of an unknown message is refused in the turn, long before the publish before it is committed."""
    session.say(pub(), of("NACK", uid="unknown"))
    published, nacked = session.conversation.slots
    nacked.tell(Outcome("q", 7, [int(Result.UNKNOWN)]))
    session.send()
    lobby.take("q")

    session.say(read)
    early = bool(session.asked) or not is_empty_of_reads(lobby)
    published.tell("uid")
    session.send()

    assert not early
    assert session.asked or not is_empty_of_reads(lobby)


def is_empty_of_reads(lobby: HandLobby, name: str = "q") -> bool:
    filed = lobby.lanes_of(name).filed
    return filed is None or not filed.reads


def test_reads_of_one_queue_do_not_wait_for_writes_of_another(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("a"), fet("a"), fet("b"))

    assert is_empty_of_reads(lobby, "a")
    assert len(lobby.take("b").reads) == 1


@pytest.mark.parametrize("look", [{"cmd": "LIST"}, {"cmd": "STATS"}], ids=["LIST", "STATS"])
def test_look_at_all_queues_stands_behind_the_newest_write_of_each(
    session: HandSession, lobby: HandLobby, look: Json
) -> None:
    session.say(pub("a"), pub("b"), pub("b", id="i"), ack("c"), look, {"cmd": "LIST", "prefix": "x"}, pub("d"))
    a, b, newest, *_ = session.conversation.slots

    a.tell("uid")
    b.tell("uid")
    session.send()
    early = list(session.asked)
    newest.tell(Outcome("b", 7, range(2, 3)))
    session.send()

    assert early == []
    assert [question.prefix for question in session.asked] == ["", "x"]


def test_look_at_all_queues_behind_another_keeps_its_order(session: HandSession) -> None:
    session.say(pub("a"), {"cmd": "LIST", "prefix": "1"})
    session.conversation.slots[0].tell("uid")  # and the session has not been flushed yet

    session.say({"cmd": "LIST", "prefix": "2"})
    early = list(session.asked)
    session.send()

    assert early == []
    assert [question.prefix for question in session.asked] == ["1", "2"]


def test_look_at_all_queues_waits_for_a_write_that_is_parked(session: HandSession, lobby: HandLobby) -> None:
    session.say(of("CREATE"), pub(), {"cmd": "LIST"})
    created = session.conversation.slots[0]

    created.tell(Outcome("q", 7, [0]))
    session.send()
    early = list(session.asked)
    publish_all(lobby.take("q"))
    session.send()

    assert early == []
    assert len(session.asked) == 1


# --- rule 4: a write never waits for a read, nor for a write of another queue ---------------------------------------


def test_publish_between_fetches_of_its_queue_is_filed_at_once(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(message="1"), fet(), pub(message="2"), fet())

    filed = lobby.take("q")
    assert bodies(filed) == [[b"1", b"2"]]
    assert filed.reads == []

    publish_all(filed)
    assert session.words() == ["ok"]
    assert len(lobby.take("q").reads) == 2


@pytest.mark.parametrize("write", [write for write in WRITES if write["qname"] == "q"], ids=named)
@pytest.mark.parametrize(
    "before", [fet(), of("PEEK"), pub(message="first"), pub("r"), ack(), of("NACK", uid="v"), *CLAIMS], ids=named
)
def test_write_behind_a_read_or_a_plain_write_is_filed_at_once(session: HandSession, before: Json, write: Json) -> None:
    session.say(before, write)

    assert is_filed(session, write)


# --- rule 5: what changes a queue as a whole, and an ACK that publishes, hold back later plain writes ---------------

CHANGES = [
    of("CREATE"),
    of("UPDATE", max_size=1),
    of("DROP"),
    of("PURGE"),
    follow_up("q", on="other"),
    follow_up("other"),
]
PLAIN = [pub(), pub(id="i"), ack(), of("NACK", uid="u"), of("TOUCH", uid="u"), of("PUBB", **block_of("x"))]


@pytest.mark.parametrize("plain", PLAIN, ids=named)
@pytest.mark.parametrize("change", CHANGES, ids=named)
def test_plain_write_behind_a_change_of_its_queue_is_filed_when_that_has_its_outcome(
    session: HandSession, lobby: HandLobby, change: Json, plain: Json
) -> None:
    session.say(change)
    lobby.take("q")
    session.say(plain)
    held, written = session.conversation.slots
    assert lobby.lanes_of("q").filed is None

    held.tell(Refusal("BUSY", "not now"))
    session.send()

    assert any(slot is written for slot in slots_of(lobby.take("q")))


@pytest.mark.parametrize("change", CHANGES, ids=named)
def test_plain_write_to_another_queue_does_not_wait_for_a_change(
    session: HandSession, lobby: HandLobby, change: Json
) -> None:
    session.say(change, pub("elsewhere"))

    assert bodies(lobby.take("elsewhere")) == [[b"m"]]


IN_ONE_LANE = [change for change in CHANGES if change["qname"] == "q"]


@pytest.mark.parametrize("second", IN_ONE_LANE, ids=named)
@pytest.mark.parametrize("first", IN_ONE_LANE, ids=named)
def test_change_behind_a_change_of_the_same_queue_waits_for_nothing(
    session: HandSession, lobby: HandLobby, first: Json, second: Json
) -> None:
    session.say(first, second)

    assert len(lobby.take("q").orders) == 2


@pytest.mark.parametrize("first", [*IN_ONE_LANE, pub(message="first")], ids=named)
def test_follow_up_to_a_queue_with_an_open_write_of_its_connection_stands_behind_that(
    session: HandSession, lobby: HandLobby, first: Json
) -> None:
    session.say(first, follow_up("q", on="other"))
    is_early = lobby.lanes_of("other").filed is not None

    session.conversation.slots[0].tell(wire.Pong())
    session.send()

    assert not is_early
    assert len(lobby.take("other").orders) == 1


def test_acknowledgements_that_publish_are_filed_together(session: HandSession, lobby: HandLobby) -> None:
    session.say(*[follow_up("r")] * 64)

    assert len(lobby.take("q").orders) == 64


def test_writes_that_are_held_back_are_filed_in_their_order(session: HandSession, lobby: HandLobby) -> None:
    session.say(of("CREATE"), pub(message="1"), pub(message="2"), follow_up("r"), pub(message="3"))
    create, one, two, barrier, three = session.conversation.slots
    lobby.take("q")

    create.tell(Outcome("q", 7, [0]))
    session.send()
    filed = lobby.take("q")
    one.tell("uid")
    two.tell("uid")
    session.send()
    early = lobby.lanes_of("q").filed
    barrier.tell(Outcome("q", 7, [0], [Outcome("r", 8, range(1, 2))]))
    session.send()

    assert bodies(filed) == [[b"1", b"2"]]
    assert [order.slot for order in filed.orders] == [barrier]
    assert early is None
    assert bodies(lobby.take("q")) == [[b"3"]]
    assert three.outcome is MISSING


def test_acknowledgement_that_publishes_waits_behind_writes_held_back_on_any_of_its_queues(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(of("CREATE", "r"), pub("r", "first"), follow_up("r"))
    create, *_ = session.conversation.slots
    assert lobby.lanes_of("q").filed is None

    create.tell(Outcome("r", 7, [0]))
    session.send()
    published = lobby.take("r")
    is_early = lobby.lanes_of("q").filed is not None
    publish_all(published)
    session.send()

    assert bodies(published) == [[b"first"]]
    assert not is_early
    assert len(lobby.take("q").orders) == 1


def test_read_behind_a_write_that_is_held_back_stands_behind_it(session: HandSession, lobby: HandLobby) -> None:
    session.say(of("PURGE"), pub(message="new"), fet())
    purge, *_ = session.conversation.slots

    purge.tell(Outcome("q", 7, [2]))
    session.send()
    filed = lobby.take("q")
    publish_all(filed)
    session.send()

    assert (bodies(filed), filed.reads) == ([[b"new"]], [])
    assert len(lobby.take("q").reads) == 1


def test_write_behind_a_change_that_is_done_is_not_held_back(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet("slow"), of("CREATE"))
    session.conversation.slots[1].tell(Outcome("q", 7, [0]))
    session.send()
    lobby.take("q")

    session.say(pub())

    assert bodies(lobby.take("q")) == [[b"m"]]


def test_write_that_is_refused_when_it_is_filed_late_is_answered_in_its_place(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(of("CREATE"), pub(message="x" * 101), pub(message="y"))

    session.conversation.slots[0].tell(Outcome("q", 7, [0]))
    first = session.hear()
    publish_all(lobby.take("q"))

    assert [reply.get("err", reply["cmd"]) for reply in (*first, *session.hear())] == ["okcreate", "TOO_LARGE", "ok"]


# --- rule 10: waits end when the client goes on, and awk stands behind its okslp ------------------------------------


def end_of_waits(filed: Filed) -> list[Slot]:
    return [order.asker for order in filed.orders if isinstance(order, orders.EndWait)]


ENDERS: list[Json | bytes] = [PING, pub("r"), fet("r"), ack("r"), {"cmd": "LIST"}, b"x\n"]


@pytest.mark.parametrize("ender", ENDERS, ids=lambda ender: ender["cmd"] if isinstance(ender, dict) else "bad line")
@pytest.mark.parametrize("together", [True, False], ids=["in one read", "in two reads"])
def test_further_command_ends_the_fetches_that_wait_without_cmd_id(
    session: HandSession, lobby: HandLobby, ender: Json | bytes, together: bool
) -> None:
    session.say(PING)
    session.hear()
    waits = [fet(wait=5), fet("other", wait=5), fet(wait=5, cmd_id="stays")]
    if together:
        session.say(*waits, ender)
    else:
        session.say(*waits)
        session.say(ender)

    mine, other, stays = [
        *lobby.lanes_of("q").filed.reads[:1],
        *lobby.take("other").reads,
        lobby.lanes_of("q").filed.reads[1],
    ]
    assert (mine.is_over, other.is_over, stays.is_over) == (True, True, False)
    assert end_of_waits(lobby.take("q")) == [mine]


@pytest.mark.parametrize("more", [fet(wait=5), fet(wait=5, cmd_id=1)], ids=["without cmd_id", "with cmd_id"])
def test_wait_does_not_end_with_another_waiting_fetch(session: HandSession, lobby: HandLobby, more: Json) -> None:
    session.say(fet(wait=5), more)
    session.say(more)

    filed = lobby.take("q")
    assert [slot.is_over for slot in filed.reads] == [False] * 3
    assert filed.orders == []


def test_fetch_that_has_its_answer_is_not_ended(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet("slow"), fet(wait=5))
    lobby.take("q").reads[0].tell([delivery("x")])

    session.say(PING)

    assert lobby.lanes_of("q").filed is None


def test_wait_that_is_ended_before_it_is_filed_does_not_wait(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(), fet(wait=5), PING)

    publish_all(lobby.take("q"))
    session.send()

    (slot,) = lobby.take("q").reads
    assert slot.is_over


def test_wait_of_a_client_that_says_nothing_more_is_ended(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet(wait=5), fet(wait=5, cmd_id=1))
    mine, stays = lobby.take("q").reads

    session.conversation.has_ended = True
    session.conversation.end_waits()

    assert end_of_waits(lobby.take("q")) == [mine]
    assert (mine.is_over, stays.is_over) == (True, False)


def test_wait_held_back_while_the_client_ends_does_not_begin(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(), fet(wait=5))
    session.conversation.has_ended = True
    session.conversation.end_waits()
    publish_all(lobby.take("q"))

    session.send()

    assert [slot.is_over for slot in lobby.take("q").reads] == [True]


def test_awk_without_an_open_islp_leaves_at_once(session: HandSession) -> None:
    session.say(fet("other"))

    assert session.conversation.awk("q") == [wire.Awk(qname="q")]


def test_awk_leaves_right_behind_the_okslp_that_is_still_to_leave(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("slow"), of("ISLP"), of("ISLP", "r"), PING)
    lobby.take("q").reads[0].tell(None)
    lobby.take("r").reads[0].tell(None)

    at_once = session.conversation.awk("q")
    publish_all(lobby.take("slow"))

    assert at_once == []
    assert [(reply["cmd"], reply.get("qname")) for reply in session.hear()] == [
        ("ok", "slow"), ("okslp", "q"), ("awk", "q"), ("okslp", "r"), ("pong", None),
    ]  # fmt: skip


def test_refused_islp_is_followed_by_no_awk(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("slow"), of("ISLP"))
    lobby.take("q").reads[0].tell(Refusal("BUSY", "not now"))
    session.conversation.awk("q")
    publish_all(lobby.take("slow"))

    assert session.words() == ["ok", "nok"]


# --- rule 17: a delivery that is not on the socket may be withdrawn at the flush ------------------------------------


@pytest.mark.parametrize(
    "fetch", [fet(), fet(count=2), fet(wait=5, cmd_id=1), of("FETB")], ids=["one", "several", "apart", "block"]
)
def test_delivery_of_a_term_that_is_over_is_refused_and_returned(
    session: HandSession, lobby: HandLobby, fetch: Json
) -> None:
    session.say(pub("slow"), fetch)
    found = [delivery("x", term=3)]
    lobby.take("q").reads[0].tell(found)
    session.withdrawn[3] = NOT_LEADER
    publish_all(lobby.take("slow"))

    refusal = next(reply for reply in session.hear() if reply["cmd"] == "nok")

    assert (refusal["err"], refusal["leader"]) == ("NOT_LEADER", "node-2:2601")
    assert session.unsent == [("q", found)]


def test_delivery_of_this_term_leaves(session: HandSession, lobby: HandLobby) -> None:
    session.withdrawn[2] = NOT_LEADER
    session.say(fet())

    lobby.take("q").reads[0].tell([delivery("x", term=3)])

    assert session.words() == ["msg"]
    assert session.unsent == []


def test_slice_of_a_term_that_is_over_is_refused_and_its_messages_stay_claimed(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(of("SLICE", source="s", epoch=1))
    seen = Seen(["u"], [], [], [], [], 0, term=3)
    session.withdrawn[3] = NOT_LEADER

    lobby.take("q").orders[0].asker.tell(seen)

    assert [reply["err"] for reply in session.hear()] == ["NOT_LEADER"]
    assert session.unsent == []


# --- rule 20: a connection that ends ------------------------------------------------------------------------------


def test_filed_commands_stay_filed_when_the_conversation_has_ended(session: HandSession, lobby: HandLobby) -> None:
    session.say(fet(), pub(), ack())
    session.conversation.has_ended = True

    filed = lobby.take("q")

    assert (bodies(filed), len(filed.acks), len(filed.reads)) == ([[b"m"]], 1, 1)
    publish_all(filed)


# --- refusals ------------------------------------------------------------------------------------------------------


def test_node_that_may_not_serve_refuses_commands_that_need_a_leader_and_answers_the_rest(
    session: HandSession, lobby: HandLobby
) -> None:
    session.refused = NOT_LEADER

    session.say(pub(), fet(), fet(wait=5, cmd_id=7), ack(), of("SUB"), {"cmd": "LIST"}, of("PEEK"), PING,
                {"cmd": "HELLO"}, of("UNS"))  # fmt: skip

    heard = session.hear()
    assert [reply.get("err", reply["cmd"]) for reply in heard if reply.get("cmd_id") != 7] == [
        *["NOT_LEADER"] * 6, "pong", "hello", "okuns",
    ]  # fmt: skip
    assert [reply["leader"] for reply in heard if reply.get("cmd_id") == 7] == ["node-2:2601"]
    assert [type(slot.command) for slot in lobby.take("q").reads] == [wire.Uns]
    assert session.asked == []


def test_refusal_of_the_log_is_said_in_the_place_of_the_command(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(), ack(uid="u", cmd_id=5), fet())
    filed = lobby.take("q")

    publish_slots(filed)[0].tell(Refusal("DISK_FULL", "no room"))
    ack_slots(filed)[0].tell(Refusal("UNKNOWN", "done, or not"))
    heard = session.hear()
    lobby.take("q").reads[0].tell(Refusal("Q_NOT_FOUND", "no such queue"))

    assert [(reply["err"], reply.get("cmd_id")) for reply in (*heard, *session.hear())] == [
        ("DISK_FULL", None), ("UNKNOWN", 5), ("Q_NOT_FOUND", None),
    ]  # fmt: skip


def test_codes_of_a_queue_are_said_in_the_words_of_the_protocol(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub(message="1"), pub(message="2"), ack(uid="a"), ack(uid="b"), ack(uid="c"))
    filed = lobby.take("q")

    for slot, outcome in zip(publish_slots(filed), ["uid", int(Result.QUEUE_FULL)], strict=True):
        slot.tell(outcome)
    for slot, outcome in zip(ack_slots(filed), [0, int(Result.UNKNOWN), int(Result.STALE)], strict=True):
        slot.tell(outcome)

    ok, full, done, unknown, stale = session.hear()
    assert (ok["uid"], full["err"], stale["err"]) == ("uid", "QUEUE_FULL", "STALE_LEASE")
    assert (done.get("known"), unknown["known"]) == (None, False)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (pub(message="x" * 101), "TOO_LARGE"),
        (pub(n=1), "BAD_FIELD"),
        (of("PUBB", n=1, **block_of("x")), "BAD_FIELD"),
        (ack(lease="no lease"), "BAD_FIELD"),
        (of("NACK", uid="u", lease="no lease"), "BAD_FIELD"),
        (ack(publish=[{"qname": "r", "message": "x" * 101}]), "TOO_LARGE"),
        (of("CREATE", priority_min=5, priority_max=1), "BAD_FIELD"),
    ],
    ids=lambda value: value["cmd"] if isinstance(value, dict) else value,
)
def test_command_with_a_bad_value_is_refused_in_its_place_and_holds_up_nothing(
    session: HandSession, lobby: HandLobby, command: Json, code: str
) -> None:
    session.say(pub("a"), command, fet())
    publish_all(lobby.take("a"))

    ok, refused = session.hear()

    assert (ok["cmd"], refused["err"]) == ("ok", code)
    filed = lobby.take("q")
    assert len(filed.reads) == 1, "a read does not stand behind what is refused"
    assert [*filed.orders, *filed.acks, *filed.publishes] == []


def test_command_that_is_not_allowed_is_refused_between_others(session: HandSession, lobby: HandLobby) -> None:
    session.forbidden[wire.Purge] = Forbidden("the token is not good for that")

    session.say(pub(), of("PURGE", cmd_id=3), pub(message="2"))

    filed = lobby.take("q")
    publish_all(filed)
    assert bodies(filed) == [[b"m", b"2"]]
    assert [(reply.get("err", reply["cmd"]), reply.get("cmd_id")) for reply in session.hear()] == [
        ("ok", None), ("FORBIDDEN", 3), ("ok", None),
    ]  # fmt: skip


def test_connection_that_knows_too_many_queues_is_refused_more(
    session: HandSession, lobby: HandLobby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUEUES_MAX", 2)

    session.say(of("SUB", "a"), fet("b"), of("SUB", "c"), fet("d"), of("SUB", "b"), fet("a"), pub("e"))

    for slot in (*lobby.take("b").reads, *lobby.take("a").reads):
        slot.tell(None)
    publish_all(lobby.take("e"))
    assert [reply.get("err", reply["cmd"]) for reply in session.hear()] == [
        "oksub", "nomsg", "BUSY", "BUSY", "oksub", "nomsg", "ok",
    ]  # fmt: skip
    assert session.conversation.known_queues == {"a", "b"}


@pytest.mark.parametrize("command", [of("SUB"), fet(), of("FETB"), of("ISLP")], ids=lambda command: command["cmd"])
def test_queue_from_which_a_client_wants_messages_hears_of_its_end(session: HandSession, command: Json) -> None:
    session.say(command, pub("not"), ack("not"), of("PEEK", "not"))

    assert session.conversation.known_queues == {"q"}


# --- bad lines and HELLO -------------------------------------------------------------------------------------------


def test_bad_line_between_commands_is_refused_in_its_place(session: HandSession, lobby: HandLobby) -> None:
    session.say(pub("q", "1"), b"x\n", {"cmd": "XYZ", "cmd_id": 4}, pub("q", "2"))

    publish_all(lobby.take("q"))

    assert [reply.get("err", reply["cmd"]) for reply in session.hear()] == ["ok", "BAD_JSON", "BAD_COMMAND", "ok"]
    assert session.conversation.closing == ""


def test_first_line_that_is_no_command_ends_the_connection_and_nothing_behind_it_is_done(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(b"GET / HTTP/1.1\r\n", pub())
    session.say(pub())

    assert [reply["err"] for reply in session.hear()] == ["BAD_JSON"]
    assert session.conversation.closing == "BAD_JSON"
    assert lobby.woken == []


def test_connection_closes_when_bad_lines_outweigh_the_commands(session: HandSession) -> None:
    session.say(PING)
    session.say(b"x\n" * BAD_LINES_MAX)
    session.say(*[PING] * GOOD_FOR_BAD)
    session.say(b"x\n")
    forgiven = session.conversation.closing

    session.say(b"x\n")

    assert forgiven == ""
    assert session.conversation.closing == "BAD_JSON"


def test_refused_command_makes_a_stranger_known(session: HandSession) -> None:
    session.say(b'{"cmd":"PUB","qname":" ","message":"x"}\n', b"x\n")

    assert [reply["err"] for reply in session.hear()] == ["BAD_NAME", "BAD_JSON"]
    assert session.conversation.closing == ""


def test_hello_says_the_limits_and_keeps_the_session(session: HandSession, lobby: HandLobby) -> None:
    session.say({"cmd": "HELLO", "session": "s", "cmd_id": 1}, pub(n=5), {"cmd": "HELLO"})

    publish_all(filed := lobby.take("q"))
    hello, _, again = session.hear()

    assert (hello["session"], hello["limits"], hello["version"]) == ("s", {"message_bytes_max": 100}, "1")
    assert (again["session"], hello["cmd_id"]) == ("s", 1)
    (run,) = filed.publishes
    assert isinstance(run, Run)
    assert (run.session_id, run.ordinals) == ("s", [5])


def test_hello_says_who_the_client_is_and_a_later_one_changes_it(session: HandSession) -> None:
    session.say({"cmd": "HELLO", "host": "a", "pid": 7, "tasks": ["x"], "token": "good"}, {"cmd": "HELLO"})
    first = facts_of(session.conversation.identity)

    session.say({"cmd": "HELLO", "host": "b"})

    assert first == NOT_SAID | {"host": "a", "pid": 7, "tasks": ["x"]}
    assert facts_of(session.conversation.identity) == NOT_SAID | {"host": "b"}
    assert [reply["cmd"] for reply in session.hear()] == ["hello"] * 3


def test_hello_with_an_identity_that_does_not_fit_is_obeyed_without_it(session: HandSession) -> None:
    session.say({"cmd": "HELLO", "host": "a"}, {"cmd": "HELLO", "session": "s", "tasks": ["x" * 200] * 100})

    assert [reply["cmd"] for reply in session.hear()] == ["hello", "hello"]
    assert facts_of(session.conversation.identity) == NOT_SAID | {"host": "a"}
    assert session.conversation.session_id == "s"


def test_login_that_is_refused_ends_the_connection_and_nothing_behind_it_is_done(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say({"cmd": "HELLO", "token": "wrong"}, {"cmd": "HELLO", "token": "good"}, pub())

    assert [reply["err"] for reply in session.hear()] == ["UNAUTHORIZED"]
    assert session.conversation.closing == "UNAUTHORIZED"
    assert lobby.woken == []


# --- acknowledgements ----------------------------------------------------------------------------------------------


def test_acknowledgements_of_one_message_are_columns_and_of_several_an_entry_each(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(ack(uid="a", lease="3-1"), of("DEL", uid="b"), of("ACK", uids=["c", "d"], leases=["3-3", None]))

    plain, several = lobby.take("q").acks

    assert isinstance(plain, Acks)
    assert (plain.uids, plain.tokens) == (["a", "b"], [(3, 1), ANY_TOKEN])
    assert isinstance(several, AckSeveral)
    assert (several.uids, several.tokens) == (["c", "d"], [(3, 3), ANY_TOKEN])


def test_acknowledgements_of_one_connection_stay_in_their_order(session: HandSession, lobby: HandLobby) -> None:
    """Each message counts as known in the first command that names it."""
    session.say(ack(uid="a"), of("ACK", uids=["b", "c"]), ack(uid="b"))

    uids = [uid for acks in lobby.take("q").acks for uid in acks.uids]

    assert uids == ["a", "b", "c", "b"]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("cmd", ["NACK", "TOUCH"])
@pytest.mark.parametrize("between", ["nothing", "a flush", "another queue"])
def test_acknowledgement_behind_a_nack_or_touch_that_its_queue_has_not_seen_stands_behind_it(
    session: HandSession, lobby: HandLobby, cmd: str, several: bool, between: str
) -> None:
    """Plain acknowledgements are marked before anything else; these must not find the message leaving."""
    session.say(PING, of(cmd, uid="u"))
    if between == "a flush":
        assert session.words() == ["pong"]
    elif between == "another queue":
        session.say(of("TOUCH", "other", uid="u"))

    session.say(of("ACK", uids=["u", "v"]) if several else ack(uid="u"))

    filed = lobby.take("q")
    assert filed.acks == []
    assert [order.slot if isinstance(order, AckSeveral) else type(order) for order in filed.orders] == [
        orders.Nack if cmd == "NACK" else orders.Touch,
        session.conversation.slots[-1],
    ]


def test_results_of_a_nack_of_several_may_come_in_parts(session: HandSession, lobby: HandLobby) -> None:
    session.say(of("NACK", uids=["a", "b", "c"]))
    asker = lobby.take("q").orders[0].asker

    asker.at([1]).tell(Outcome("q", 7, [int(Result.UNKNOWN)]))
    early = session.hear()
    asker.at([0, 2]).tell(Outcome("q", 7, [0, 0]))

    assert early == []
    assert [reply["unknown"] for reply in session.hear()] == [["b"]]


# --- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends_frames", [True, False], ids=["frames", "lines"])
def test_block_leaves_raw_where_the_door_takes_frames(
    session: HandSession, lobby: HandLobby, sends_frames: bool
) -> None:
    session.sends_frames = sends_frames
    session.say(PING, of("FETB", count=5), PING)

    lobby.take("q").reads[0].tell([delivery("x", 1), delivery("y", 2)])
    data = session.send()

    (pong, block, last) = wire.decode_replies(data)
    assert (type(pong), type(last)) == (wire.Pong, wire.Pong)
    assert isinstance(block, wire.Block)
    assert (block.rows, block.term) == (2, 3)
    assert (b"\n*" in data) is sends_frames


def test_bytes_of_pipelined_commands_come_back_as_the_bytes_of_their_answers(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(
        b'{"cmd":"PUB","qname":"q","message":"1","cmd_id":1}\n{"cmd":"FET","qname":"q"}\n'
        b'{"cmd":"ACK","qname":"q","uid":"u","cmd_id":"a"}\nnonsense\n{"cmd":"PING","cmd_id":null}\n'
    )
    filed = lobby.take("q")
    publish_slots(filed)[0].tell("0000001_00000001")
    ack_slots(filed)[0].tell(0)

    first = session.send()
    lobby.take("q").reads[0].tell([delivery("1", term=3)])
    rest = session.send()

    assert first == b'{"cmd":"ok","qname":"q","uid":"0000001_00000001","cmd_id":1}\n'
    lines = rest.splitlines()
    assert lines[0] == b'{"cmd":"msg","qname":"q","uid":"uid of 1","error_count":0,"msg":"1","lease":"3-1"}'
    assert lines[1] == b'{"cmd":"okack","uid":"u","qname":"q","cmd_id":"a"}'
    assert lines[2].startswith(b'{"cmd":"nok","err":"BAD_JSON"')
    assert lines[3] == b'{"cmd":"pong","cmd_id":null}'


# --- what an idle connection keeps ---------------------------------------------------------------------------------


def test_connection_with_everything_answered_keeps_nothing(session: HandSession, lobby: HandLobby) -> None:
    session.say(of("CREATE"), pub(), fet(), pub("r"), {"cmd": "LIST"}, follow_up("r"))
    while session.conversation.slots:
        for slot in session.conversation.slots:
            slot.tell(Refusal("BUSY", "not now"))
        session.hear()

    conversation = session.conversation
    kept = [
        getattr(conversation, name) for name in ("_open_writes", "_holds", "_parked", "_standing", "_standing_for_all")
    ]
    assert [one or None for one in kept] == [None] * 5
    assert conversation.in_flight == 0


def test_answered_publish_of_a_connection_that_is_never_idle_is_let_go(session: HandSession, lobby: HandLobby) -> None:
    """Its body may be a megabyte, and the connection may publish to thousands of queues."""
    text = "".join(["b"] * 50)
    before = sys.getrefcount(text)
    session.conversation.receive([wire.Pub(qname="a", message=text)])
    session.say(fet("slow"))
    publish_all(lobby.take("a"))

    session.hear()
    session.say(pub("b"))

    assert sys.getrefcount(text) == before


def test_change_that_is_done_is_let_go_though_its_connection_is_never_idle(
    session: HandSession, lobby: HandLobby
) -> None:
    """A worker that answers to a queue of each caller names new queues all the time."""
    session.say(fet("slow"))
    for number in range(3):
        session.say(follow_up(f"reply-{number}"))
        (order,) = lobby.take("q").orders
        order.slot.tell(Outcome("q", 7, [0], [Outcome(f"reply-{number}", 8, [1])]))
        session.send()

    session.say(fet("slow"))
    session.send()

    assert not session.conversation._holds


def test_writes_stay_behind_what_is_parked_when_the_change_before_it_is_let_go(
    session: HandSession, lobby: HandLobby
) -> None:
    session.say(of("CREATE", "a"), pub("b", "open"), follow_up("a", "b"), pub("a", "parked"))
    session.conversation.slots[0].tell(Outcome("a", 7, [0]))
    session.send()

    session.say(pub("a", "later"))
    publish_all(lobby.take("b"))
    session.send()
    early = bodies(lobby.take("a"))
    for order in lobby.take("q").orders:
        order.slot.tell(Outcome("q", 7, [0], [Outcome("a", 7, [1]), Outcome("b", 8, [1])]))
    session.send()

    assert early == []
    assert bodies(lobby.take("a")) == [[b"parked", b"later"]]


@pytest.mark.parametrize("read", [fet(), {"cmd": "LIST"}], ids=["FET", "LIST"])
def test_reads_that_stand_behind_many_writes_cost_no_copy_of_them_each(session: HandSession, read: Json) -> None:
    """A client that pipelines on a slow disk must not cost the square of what it has in flight."""
    count = 500
    session.say(*[pub() for _ in range(count)])
    reads = [read for _ in range(count)]

    used = peak_bytes(lambda: session.say(*reads))

    assert used < count * 1_500


def test_fetches_that_waited_are_let_go_though_the_client_does_nothing_else(
    session: HandSession, lobby: HandLobby
) -> None:
    for number in range(100):
        session.say(fet(wait=5))
        lobby.take("q").reads[-1].tell([delivery("m", number)])
        session.send()

    assert len(session.conversation._waits or ()) < 5


def held_bytes(pairs: int, commands: list[wire.Command]) -> int:
    """Return how much memory a conversation takes for so many of these in a row, none of which is answered."""
    session, read = HandSession(), commands * pairs
    return peak_bytes(partial(session.conversation.receive, read))


def refuse_all(pairs: int, commands: list[wire.Command]) -> None:
    """File so many of these in a row, and refuse them all."""
    session, read = HandSession(), commands * pairs
    session.conversation.receive(read)
    while session.conversation.slots:
        for slot in session.conversation.slots:
            slot.tell(Refusal("BUSY", "not now"))
        session.send()


@pytest.mark.parametrize(
    "commands",
    [
        [wire.Pub(qname="q", message="m"), wire.Fet(qname="q")],
        [wire.Pub(qname="q", message="m"), wire.List()],
        [wire.Purge(qname="q"), wire.Pub(qname="q", message="m"), wire.Fet(qname="q")],
        [
            wire.Ack(qname="q", uid="u", publish=[wire.Followup(qname="r", message="m")]),
            wire.Pub(qname="r", message="m"),
        ],
        [wire.Fet(qname="q", wait=5), wire.Ping()],
        [wire.Fet(qname="q", wait=5)],
        [wire.Ack(qname="q", uid="u", publish=[wire.Followup(qname="r", message="m")])],
    ],
    ids=["reads", "lists", "held back", "between follow-ups", "ended waits", "waits", "follow-ups"],
)
def test_memory_and_time_of_pipelined_commands_grow_with_their_number_alone(commands: list[wire.Command]) -> None:
    """One connection may have 16,384 commands in flight; that must not cost everybody the square of that."""
    held_bytes(10, commands)

    few, many = held_bytes(500, commands), held_bytes(2_000, commands)
    short, long = (steps(partial(refuse_all, count, commands)) for count in (100, 800))

    assert many < 6 * few
    assert long < 24 * short, "eight times is fair, the square would be 64 times"


# --- a session's reply to the second outcome --------------------------------------------------------------------------


@pytest.mark.parametrize("again", [lambda slot: slot.tell("other"), lambda slot: slot.tell(Refusal("BUSY", "no"))])
def test_second_outcome_of_a_command_is_dropped(
    session: HandSession, lobby: HandLobby, again: Callable[[Slot], None]
) -> None:
    session.say(pub())
    (slot,) = publish_slots(lobby.take("q"))
    slot.tell("first")

    again(slot)

    assert [reply["uid"] for reply in session.hear()] == ["first"]
    again(slot)
    assert session.hear() == []
