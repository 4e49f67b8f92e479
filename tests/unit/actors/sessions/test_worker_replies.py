"""What becomes of commands and outcomes: the short ways of the many come to the same as the long ones."""

from pathlib import Path
from typing import Any

import pytest

from wakeq.actors.mail import Outcome
from wakeq.actors.sessions.worker_replies import (
    REFUSALS,
    draft_of,
    drafts_of,
    plain_draft_of,
    plain_drafts_of,
    published,
    runs_of,
)
from wakeq.protocol.errors import BY_CODE, TooLarge
from wakeq.protocol.log.entries import Result
from wakeq.protocol.queue.columns.alike import Alike
from wakeq.protocol.uid import UidMaker
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import Item

PROTOCOL_PAGE = Path(__file__).parents[4] / "docs" / "protocols" / "worker.md"
LIMIT = 10
PLAIN: list[dict[str, Any]] = [
    {"message": "text"},
    {"msg": "text of the real clients"[:LIMIT]},
    {"message": "first", "msg": "second"},
    {"message": ""},
    {"message": "é" * 5},
    {"message": "m", "qname": "another"},
    {"message": "m", "priority": -3, "delay": 2, "expires": 4, "timeout": 5},
]
NOT_PLAIN: list[dict[str, Any]] = [
    {"message": "aGk=", "enc": "b64"},
    {"message": "m", "headers": {"a": "b"}},
    {"message": "m", "id": "once"},
    {"message": "m", "n": 1},
    {"messages": ["m"]},
    {"message": "é" * 6},
]


def pub(**fields: Any) -> wire.Pub:
    return wire.Pub(**({"qname": "q"} | fields))


def test_plain_publishes_together_are_what_each_is_alone() -> None:
    pubs = [pub(**fields) for fields in PLAIN]

    long = [draft_of(wire.contents_of(each)[0], LIMIT) for each in pubs]

    assert [plain_draft_of(each, LIMIT) for each in pubs] == long
    assert plain_drafts_of(pubs, LIMIT) == (long, False)
    assert plain_drafts_of(pubs[:-1], LIMIT) == (long[:-1], True)


@pytest.mark.parametrize("fields", NOT_PLAIN)
def test_one_that_is_not_plain_sends_all_of_them_the_long_way(fields: dict[str, Any]) -> None:
    assert plain_drafts_of([pub(message="m"), pub(**fields)], LIMIT) is None


@pytest.mark.parametrize("shared", [{}, {"priority": -3, "delay": 2, "expires": 4, "timeout": 5}, {"timeout": 0}])
@pytest.mark.parametrize("messages", [["text", "", "é" * 5], [Item(message="m", priority=1), "text"]])
def test_the_texts_of_a_batch_are_what_each_is_alone_and_in_one_buffer(
    messages: list[Any], shared: dict[str, Any]
) -> None:
    batch = pub(messages=messages, **shared)

    drafts = drafts_of(batch, LIMIT)

    assert drafts == [draft_of(content, LIMIT) for content in wire.contents_of(batch)]
    assert (type(drafts) is Alike) == (type(messages[0]) is str)


def test_a_message_over_the_limit_is_refused_on_either_way() -> None:
    large = pub(message="é" * 6)

    with pytest.raises(TooLarge, match="12 bytes, the limit is 10"):
        plain_draft_of(large, LIMIT)
    with pytest.raises(TooLarge, match="12 bytes, the limit is 10"):
        draft_of(wire.contents_of(large)[0], LIMIT)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_uid_of_one_message_is_that_of_any_other_way(count: int) -> None:
    numbers = range(3_843, 3_843 + count)
    outcome = Outcome("q", 9, numbers)
    cmd_ids = list(range(count))

    short = published("q", outcome, numbers, cmd_ids)
    long = published("q", Outcome("q", 9, list(numbers)), list(numbers), cmd_ids)

    assert short == long == [wire.Ok(qname="q", uid=UidMaker(9).uid(n), cmd_id=i) for i, n in enumerate(numbers)]


def test_one_that_was_refused_says_why_between_others() -> None:
    results = [5, int(Result.QUEUE_FULL), 6]

    replies = published("q", Outcome("q", 9, results), results, ["a", "b", "c"])

    assert [type(reply) for reply in replies] == [wire.Ok, wire.Nok, wire.Ok]
    assert (replies[1].err, replies[1].cmd_id) == ("QUEUE_FULL", "b")


def test_what_one_read_brought_is_cut_where_the_kind_changes() -> None:
    fetch, ping = wire.Fet(qname="q"), wire.Ping()
    publish, ack = pub(message="m"), wire.Ack(qname="q", uid="u")

    assert runs_of([publish]) == [[publish]]
    assert runs_of([publish, publish]) == [[publish, publish]]
    assert runs_of([publish, ack, ack, fetch, ping, ping]) == [[publish], [ack, ack], [fetch], [ping], [ping]]


def test_every_code_that_can_be_said_has_an_error_of_the_client_and_stands_in_the_page_of_the_protocol() -> None:
    page = PROTOCOL_PAGE.read_text(encoding="utf-8")

    assert {code for code, _ in REFUSALS.values()} <= set(BY_CODE)
    assert [code for code in BY_CODE if f"\n| `{code}` |" not in page] == []
