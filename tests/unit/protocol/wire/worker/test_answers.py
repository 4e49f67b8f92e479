"""What becomes of commands and outcomes: the short ways of the many come to the same as the long ones."""

from pathlib import Path
from typing import Any

import pytest

from wakeq.protocol.errors import BY_CODE
from wakeq.protocol.log.entries import Result
from wakeq.protocol.queue.ledger.publishers import Mixed, Repeated
from wakeq.protocol.queue.ledger.uniform import UniformBatch
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.uid import UidMaker
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.answers import REFUSALS, REPLIES, acked, draft_of, drafts_of, refused
from wakeq.protocol.wire.worker.commands import Item

PROTOCOL_PAGE = Path(__file__).parents[5] / "docs" / "protocols" / "worker.md"
LIMIT = 10
DONE, UNKNOWN, STALE = int(Result.DONE), int(Result.UNKNOWN), int(Result.STALE)


def pub(**fields: Any) -> wire.Pub:
    return wire.Pub(**({"qname": "q"} | fields))


def uid(number: int, queue_id: int = 9) -> str:
    return UidMaker(queue_id).uid(number)


def reply_to(command: Any, outcome: Any) -> wire.Reply:
    return REPLIES[type(command)](command, outcome)


# --- drafts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [{}, {"priority": -3, "delay": 2, "expires": 4, "timeout": 5}, {"timeout": 0}])
@pytest.mark.parametrize("messages", [["text", "", "é" * 5], [Item(message="m", priority=1), "text"]])
def test_texts_of_a_batch_become_the_draft_of_each_alone_in_one_buffer(
    messages: list[Any], shared: dict[str, Any]
) -> None:
    batch = pub(messages=messages, **shared)

    drafts = drafts_of(batch, LIMIT)

    assert drafts == [draft_of(content, LIMIT) for content in wire.contents_of(batch)]
    assert (type(drafts) is UniformBatch) == (type(messages[0]) is str)


# --- replies to a publish --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3_843, 62**4])
def test_publish_gets_the_same_reply_for_a_uid_as_for_a_number(number: int) -> None:
    """A slot of many gets its uid, a publish that is an entry of its own gets the numbers."""
    command = pub(message="m", cmd_id=3)

    replies = [
        reply_to(command, uid(number)),
        reply_to(command, Outcome("q", 9, range(number, number + 1))),
        reply_to(command, Outcome("q", 9, [number])),
    ]

    assert replies == [wire.Ok(qname="q", uid=uid(number), cmd_id=3)] * 3


@pytest.mark.parametrize("outcome", [int(Result.QUEUE_FULL), Outcome("q", 9, [int(Result.QUEUE_FULL)])])
def test_refused_publish_says_why_with_its_cmd_id(outcome: Any) -> None:
    reply = reply_to(pub(message="m", cmd_id="b"), outcome)

    assert isinstance(reply, wire.Nok)
    assert (reply.err, reply.cmd_id) == ("QUEUE_FULL", "b")


def test_publish_that_was_stored_by_an_earlier_incarnation_gets_the_uid_of_that_time() -> None:
    earlier = Repeated(4, range(7, 8))
    mixed = Mixed()
    mixed.add(Repeated(4, range(7, 8)))
    mixed.add(range(1, 2))

    assert reply_to(pub(message="m"), Outcome("q", 4, earlier)) == wire.Ok(qname="q", uid=uid(7, 4))
    assert reply_to(pub(messages=["a", "b"]), Outcome("q", 9, mixed)) == wire.Ok(qname="q", uids=[uid(7, 4), uid(1)])


def test_batch_gets_the_uid_of_each_of_its_messages() -> None:
    batch = pub(messages=["a", "b"])

    assert reply_to(batch, Outcome("q", 9, range(3, 5))) == wire.Ok(qname="q", uids=[uid(3), uid(4)])
    assert reply_to(pub(messages=["a"]), Outcome("q", 9, range(3, 4))) == wire.Ok(qname="q", uids=[uid(3)])


# --- replies to an acknowledgement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [wire.Ack, wire.Del])
@pytest.mark.parametrize("code", [DONE, UNKNOWN, STALE])
def test_acknowledgement_of_one_message_gets_the_same_reply_alone_and_among_many(kind: Any, code: int) -> None:
    command = kind(qname="q", uid="u", cmd_id=1)

    assert acked(command, code) == reply_to(command, code) == reply_to(command, Outcome("q", 9, [code]))


def test_acknowledgement_of_several_names_the_unknown_and_stale_ones() -> None:
    command = wire.Ack(qname="q", uids=["a", "b", "c"])

    done, unknown, stale = (
        reply_to(command, Outcome("q", 9, results))
        for results in ([DONE] * 3, [DONE, UNKNOWN, DONE], [DONE, UNKNOWN, STALE])
    )

    assert done == wire.Okack(uids=["a", "b", "c"], qname="q")
    assert unknown == wire.Okack(uids=["a", "b", "c"], qname="q", unknown=["b"])
    assert isinstance(stale, wire.Nok)
    assert (stale.err, stale.uids, stale.unknown, stale.stale) == ("STALE_LEASE", ["a"], ["b"], ["c"])


def test_acknowledgement_that_publishes_says_the_uid_of_each_follow_up() -> None:
    command = wire.Ack(qname="q", uid="u", publish=[wire.Followup(qname="r", message="m")] * 2)
    follows = [Outcome("r", 8, range(5, 6)), Outcome("r", 8, [6])]

    reply = reply_to(command, Outcome("q", 9, [DONE], follows))

    assert reply == wire.Okack(uid="u", qname="q", published=[uid(5, 8), uid(6, 8)])


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("q", 9, [int(Result.QUEUE_FULL)]),
        Outcome("q", 9, [DONE], [Outcome("r", 8, range(5, 6)), Outcome("r", 8, [int(Result.QUEUE_FULL)])]),
    ],
    ids=["refused as a whole", "a follow-up refused"],
)
def test_acknowledgement_that_publishes_names_the_reason_of_its_refusal(outcome: Outcome) -> None:
    command = wire.Ack(qname="q", uid="u", publish=[wire.Followup(qname="r", message="m")] * 2)

    reply = reply_to(command, outcome)

    assert isinstance(reply, wire.Nok)
    assert reply.err == "QUEUE_FULL"


# --- refusals --------------------------------------------------------------------------------------------------------


def test_refusal_says_where_to_go_only_if_another_node_leads() -> None:
    elsewhere = refused(Refusal("NOT_LEADER", "node 2 leads", "two:2601", "two:2680"), 5)
    here = refused(Refusal("BUSY", "not now"), 5)

    assert (elsewhere.leader, elsewhere.leader_http, elsewhere.cmd_id) == ("two:2601", "two:2680", 5)
    assert (here.leader, here.leader_http, here.cmd_id) == (None, None, 5)


def test_error_codes_all_have_a_client_error_and_stand_in_the_protocol_page() -> None:
    page = PROTOCOL_PAGE.read_text(encoding="utf-8")

    assert {code for code, _ in REFUSALS.values()} <= set(BY_CODE)
    assert [code for code in BY_CODE if f"\n| `{code}` |" not in page] == []
