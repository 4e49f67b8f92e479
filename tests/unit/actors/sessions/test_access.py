"""The gate, and what each command needs; on the real broker in memory where that matters."""

import contextlib
import logging
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.steps import steps
from wakeq.actors.rate_limited_log import PAUSE_MS
from wakeq.actors.sessions import permissions
from wakeq.actors.sessions.access import QUEUES_REMEMBERED_MAX, STRANGER, TOKEN_ENDED, TOKEN_NARROWED, Access, Gate
from wakeq.protocol.access import Book, Grant, Right, digest_of
from wakeq.protocol.errors import BadField, Forbidden, Unauthorized
from wakeq.protocol.wire.taskflux import answers, commands
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.blocks import pack
from wakeq.protocol.wire.worker.commands import COMMANDS

NOW = datetime(2026, 6, 1, tzinfo=UTC)


class Clock:
    now_ms = int(NOW.timestamp() * 1000)

    def __call__(self) -> int:
        return self.now_ms


class Connection:
    peer = "10.0.0.1:5"
    closed = ""

    def close(self, reason: str, /) -> None:
        self.closed = reason


def grant(token: str, queues: str, rights: str = "publish,fetch", end: datetime | None = None) -> Grant:
    chosen = tuple(Right(word) for word in rights.split(","))
    return Grant(token, digest_of(token).hex(), tuple(queues.split()), chosen, NOW, end)


def gate(*grants: Grant, clock: Clock | None = None) -> Gate:
    return Gate(Book(grants), clock or Clock())


# --- the gate ---


def test_missing_wrong_and_expired_tokens_are_refused_alike() -> None:
    door = gate(grant("old", "*", end=NOW), grant("good", "*"))

    assert door.login("good").is_known
    refusals = set()
    for token in ("bad", "old", "goo", "goodd", ""):
        with pytest.raises(Unauthorized) as refusal:
            door.login(token)
        refusals.add(str(refusal.value))
    assert len(refusals) == 1  # nobody learns what is wrong with it
    with pytest.raises(Unauthorized):
        door.login(None)


def test_connection_is_closed_when_its_token_is_revoked_or_expires() -> None:
    clock, revoked, expired, kept = Clock(), Connection(), Connection(), Connection()
    end = datetime.fromtimestamp(clock.now_ms / 1000 + 60, UTC)
    first, second, third = grant("a", "*"), grant("b", "*", end=end), grant("c", "*")
    door = gate(first, second, third, clock=clock)
    accesses = [door.login(*each) for each in (("a", revoked), ("b", expired), ("c", kept))]

    door.renew(Book([second, third]))
    assert revoked.closed == TOKEN_ENDED
    assert not accesses[0].may(Right.FETCH, "q")
    assert not expired.closed

    door.tick()
    assert not expired.closed
    clock.now_ms += 60_000
    door.tick()
    assert expired.closed == TOKEN_ENDED
    assert not kept.closed


def test_rights_added_to_a_token_hold_for_its_open_connections() -> None:
    connection = Connection()
    door = gate(grant("a", "q", "fetch"))
    access = door.login("a", connection)
    assert access.covers(Right.FETCH, {"q"})
    assert not access.covers(Right.FETCH, {"q", "r"})

    door.renew(Book([grant("a", "*", "fetch,publish")]))

    assert access.covers(Right.FETCH, {"q", "r"})
    assert access.covers(Right.PUBLISH, {"q"})
    assert not connection.closed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("*", "publish,fetch"), ("*", "fetch")),
        (("q r", "fetch"), ("q", "fetch")),
        (("*", "fetch"), ("a* b*", "fetch")),
        (("ab*", "fetch"), ("abc*", "fetch")),
        (("a*", "fetch"), ("a?", "fetch")),
    ],
)
def test_connection_is_closed_when_its_token_loses_rights(before: tuple[str, str], after: tuple[str, str]) -> None:
    """Commands that the token allowed may be under way: a waiting fetch, a subscription."""
    connection = Connection()
    door = gate(grant("a", *before))
    access = door.login("a", connection)
    lost, queue = Right(before[1].partition(",")[0]), before[0].split()[-1].rstrip("*")
    assert access.may(lost, queue)

    door.renew(Book([grant("a", *after)]))

    assert connection.closed == TOKEN_NARROWED
    assert not access.covers(lost, {queue})


@pytest.mark.parametrize(("before", "after"), [("a b", "b a"), ("abc ab*", "a*"), ("q", "* q"), ("q", "q*")])
def test_connection_stays_open_when_its_token_keeps_its_rights(before: str, after: str) -> None:
    connection = Connection()
    door = gate(grant("a", before, "publish,fetch"))
    door.login("a", connection)

    door.renew(Book([grant("a", after, "fetch,publish", end=datetime(2030, 1, 1, tzinfo=UTC))]))

    assert not connection.closed


def test_remembered_queues_of_an_access_are_bounded() -> None:
    access = gate(grant("a", "*")).login("a")

    for number in range(QUEUES_REMEMBERED_MAX + 10):
        assert access.may(Right.FETCH, str(number))

    assert len(access._allowed[Right.FETCH]) <= QUEUES_REMEMBERED_MAX


def test_refused_logins_are_logged_with_their_address_seldom_and_without_the_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    door = gate(clock=clock)
    with caplog.at_level(logging.DEBUG):
        for number in range(1000):
            with pytest.raises(Unauthorized):
                door.login(f"guess-{number}", Connection())
        clock.now_ms += PAUSE_MS
        with pytest.raises(Unauthorized):
            door.login("guess", Connection())

    refused = "a login from 10.0.0.1:5 was refused: its token is not valid"
    assert caplog.messages == [refused, f"{refused}, and 999 others since {NOW:%Y-%m-%d %H:%M:%S} UTC"]
    assert door.refused == 1001


def test_login_without_a_token_is_logged_for_a_connection_and_not_for_a_page(caplog: pytest.LogCaptureFixture) -> None:
    door = gate()
    for connection in (None, Connection()):
        with pytest.raises(Unauthorized):
            door.login(None, connection, peer="10.0.0.2")

    assert caplog.messages == ["10.0.0.1:5 was refused: it shows no token"]


def test_wrong_token_takes_as_many_steps_as_an_unknown_one() -> None:
    tokens = [secrets.token_urlsafe(32) for _ in range(100)]
    door = gate(*[grant(token, "*") for token in tokens])

    def guess(token: str) -> None:
        with contextlib.suppress(Unauthorized):
            door.login(token, Connection())

    guess("x")  # the first one is a line of the log
    wrong = {steps(partial(guess, token[:-1] + "!")) for token in tokens}
    unknown = {steps(partial(guess, secrets.token_urlsafe(32))) for _ in tokens}

    assert len(wrong) == 1
    assert wrong == unknown


# --- what each command needs ---


def test_permissions_are_listed_for_every_command() -> None:
    decided = {wire.Hello, *permissions.OF_A_QUEUE, *permissions._OTHERWISE}
    taskflux = {*answers.REPLIES, commands.Take, commands.Dequeue, commands.ClusterMetadataRequest}

    assert {*COMMANDS.values(), *taskflux} <= decided, "list the new command in actors/sessions/permissions.py"


class Unlisted(wire.CommandBase, tag="NEW", frozen=True):
    qname: str = "q"


def test_command_without_a_listed_permission_needs_an_operator() -> None:
    worker = gate(grant("a", "*", "publish,fetch")).login("a")
    operator = gate(grant("a", "*", "admin")).login("a")

    assert isinstance(permissions.refusal_of(Unlisted(), worker), Forbidden)
    assert permissions.refusal_of(Unlisted(), operator) is None


@pytest.mark.parametrize("kind", [kind for kind in COMMANDS.values() if kind is not wire.Hello])
def test_stranger_may_do_nothing(kind: type[wire.CommandBase]) -> None:
    fields = {field.name: "q" for field in msgspec.structs.fields(kind) if field.required}

    assert isinstance(permissions.refusal_of(kind(**fields), STRANGER), Unauthorized)


class Only(Access):
    """An access that has each right for its own queues, which one token cannot have."""

    def __init__(self, rights: list[tuple[str, ...]]) -> None:
        super().__init__(grant("t", "*"))
        self.grants = [grant("t", queue, right) for queue, right in rights]

    def may(self, right: Right, queue: str) -> bool:
        return any(each.allows(right, queue) for each in self.grants)

    def may_all(self, right: Right, prefix: str = "") -> bool:
        return any(each.allows_all(right, prefix) for each in self.grants)


FOLLOWUP = [wire.Followup(qname="other", message="x")]


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (wire.Pub(qname="q", message="x"), "q publish"),
        (wire.Fet(qname="q"), "q fetch"),
        (wire.Ack(qname="q", uid="u"), "q fetch"),
        (wire.Ack(qname="q", uid="u", publish=FOLLOWUP), "q fetch, other publish"),
        (wire.Del(qname="q", uid="u", publish=FOLLOWUP), "q fetch, other publish"),
        (wire.Nack(qname="q", uid="u"), "q fetch"),
        (wire.Touch(qname="q", uid="u"), "q fetch"),
        (wire.Peek(qname="q"), "q fetch"),
        (wire.Purge(qname="q"), "q admin"),
        (wire.Create(qname="q"), "q admin"),
        (wire.Update(qname="q", dead_letter="other"), "q admin, other admin"),
        (wire.Create(qname="q", dead_letter="other"), "q admin, other admin"),
        (wire.List(prefix="q"), "q* admin"),
        (wire.List(), "* admin"),
        (wire.Stats(), "* admin"),
        (wire.Cluster(do="remove"), "* admin"),
    ],
    ids=str,
)
def test_command_needs_all_of_its_rights_and_no_other(command: wire.CommandBase, needed: str) -> None:
    rights = [tuple(part.split()) for part in needed.split(", ")]

    assert permissions.refusal_of(command, Only(rights)) is None
    for left_out in rights:
        others = [right for right in rights if right != left_out]
        assert permissions.refusal_of(command, Only(others)) is not None, f"without {left_out}"


# --- on a broker ---


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Broker, Gate]]:
    door = gate(grant("web", "q*"), grant("boss", "*", "publish,fetch,admin"))
    broker = Broker(tmp_path)
    broker._services = broker._services._replace(gate=door)
    yield broker, door
    broker.close()


def hello(client: Client, token: str | None, **fields: str) -> dict[str, object]:
    return client.call("HELLO", **({} if token is None else {"token": token}), **fields)


def test_client_without_a_token_is_refused_and_its_connection_closed(
    guarded: tuple[Broker, Gate], caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = guarded
    client = broker.client()

    reply = client.call("PUB", "q", message="x", cmd_id=7)

    assert (reply["cmd"], reply["err"], reply["cmd_id"]) == ("nok", "UNAUTHORIZED", 7)
    assert client.door.closed
    assert not client.door.is_welcome
    assert "was refused: it shows no token" in caplog.text


def test_commands_behind_a_refused_login_are_ignored(guarded: tuple[Broker, Gate]) -> None:
    broker, _ = guarded
    client = broker.client()

    client.send(
        {"cmd": "HELLO", "token": "wrong"},
        {"cmd": "HELLO", "token": "web"},
        {"cmd": "PUB", "qname": "q", "message": "x"},
    )

    assert [reply["cmd"] for reply in client.take()] == ["nok"]
    boss = broker.client()
    hello(boss, "boss")
    assert boss.call("STATS", "q")["cmd"] == "nok"


def test_client_with_a_token_may_do_what_the_token_allows(guarded: tuple[Broker, Gate]) -> None:
    broker, _ = guarded
    client = broker.client()

    replies = client.ask(
        {"cmd": "HELLO", "token": "web"},
        {"cmd": "PUB", "qname": "q1", "message": "a"},
        {"cmd": "PUB", "qname": "other", "message": "b"},
        {"cmd": "PUB", "qname": "q2", "message": "c"},
        {"cmd": "FET", "qname": "q2"},
        {"cmd": "PURGE", "qname": "q2"},
    )

    assert [reply["cmd"] for reply in replies] == ["hello", "ok", "nok", "ok", "msg", "nok"]
    assert {reply["err"] for reply in replies if reply["cmd"] == "nok"} == {"FORBIDDEN"}
    assert client.door.is_welcome
    assert not client.door.closed


def test_batch_is_published_for_a_reader_only_with_the_right_to_fetch_what_it_has_read(
    guarded: tuple[Broker, Gate],
) -> None:
    broker, door = guarded
    door.renew(Book([grant("web", "q*"), grant("sink", "q-out", "publish"), grant("boss", "*", "publish,fetch,admin")]))
    web, sink = broker.client(), broker.client()
    hello(web, "web")
    hello(sink, "sink")
    web.publish("q-in")
    web.call("STAGE", "q-in", source="s", epoch=1)
    web.call("SLICE", "q-in", source="s", epoch=1, reader="r", batch=1)
    publish = {"writer": "w", "epoch": 1, "reader": "r", "stashes": []}

    denied, unread, allowed = (
        sink.call("UNSTASH", "q-out", **publish),
        sink.call("UNSTASH", "q-out", **publish | {"reader": "nobody", "writer": "other"}),
        web.call("UNSTASH", "q-out", **publish),
    )

    assert (denied["err"], "no right to fetch for queue 'q-in'" in denied["detail"]) == ("FORBIDDEN", True)
    assert [reply["cmd"] for reply in (unread, allowed)] == ["okrows", "okrows"]


def test_revoked_token_ends_the_connection(guarded: tuple[Broker, Gate]) -> None:
    broker, door = guarded
    client = broker.client()
    hello(client, "web")

    door.renew(Book())

    assert client.door.closed == TOKEN_ENDED
    assert client.call("PUB", "q", message="x")["err"] == "UNAUTHORIZED"


def test_hello_may_come_again_without_the_token(guarded: tuple[Broker, Gate]) -> None:
    broker, _ = guarded
    client = broker.client()
    hello(client, "web")

    assert hello(client, None, session="s")["session"] == "s"
    assert client.call("PUB", "q", message="x")["cmd"] == "ok"


# --- headers of the broker's own ---


def packed(*headers: dict[str, str] | None) -> bytes:
    return pack([("headers", [msgspec.msgpack.encode(one) if one else b"" for one in headers])])


ORIGIN = {"mine": "1", "wakeq-origin": "b1"}
IN_ITEM: list[str | wire.Item] = ["x", wire.Item(message="x", headers=ORIGIN)]
BLOCK: dict[str, object] = {"rows": 2, "columns": ["headers"], "block": packed(None, ORIGIN)}
WAYS = [
    wire.Pub(qname="a1.dead", message="x", headers=ORIGIN),
    wire.Pub(qname="a1.dead", messages=["x"], headers=ORIGIN),
    wire.Pub(qname="a1.dead", messages=IN_ITEM),
    wire.Ack(qname="a1", uid="u", publish=[wire.Followup(qname="a1.dead", message="x", headers=ORIGIN)]),
    wire.Del(qname="a1", uid="u", publish=[wire.Followup(qname="a1.dead", message="x", headers=ORIGIN)]),
    wire.PubBlock(qname="a1.dead", **BLOCK),  # type: ignore[arg-type]
    wire.Stash(qname="a1.dead", stash="s", **BLOCK),  # type: ignore[arg-type]
    wire.Stash(qname="a1.dead", stash="s", messages=IN_ITEM),
]


@pytest.mark.parametrize("command", WAYS)
@pytest.mark.parametrize(
    ("queues", "rights", "is_refused"),
    [
        ("a*", "publish,fetch", True),
        ("a* b*", "publish,fetch", True),
        ("a*", "publish,fetch,admin", True),
        ("a* b*", "publish,fetch,admin", False),
        ("*", "publish,fetch,admin", False),
    ],
)
def test_headers_of_the_broker_are_refused_in_every_command_but_of_an_operator(
    command: wire.CommandBase, queues: str, rights: str, is_refused: bool
) -> None:
    access = gate(grant("t", queues, rights)).login("t")

    found = permissions.refusal_of(command, access)

    assert (found is not None) is is_refused
    if found is not None:
        assert type(found) is BadField
        assert "'wakeq-origin'" in str(found)
        assert "the right to admin for 'a1.dead' and 'b1'" in str(found)


@pytest.mark.parametrize("command", WAYS)
def test_right_to_publish_is_checked_before_the_headers(command: wire.CommandBase) -> None:
    access = gate(grant("t", "c*", "publish,fetch,admin")).login("t")

    found = permissions.refusal_of(command, access)

    assert isinstance(found, Forbidden)


@pytest.mark.parametrize("headers", [{"wakeq-redriven": "1"}, {"wakeq-origin-uid": "x"}, {"wakeq-anything": ""}])
def test_header_of_the_broker_that_names_no_queue_needs_an_operator_of_its_queue(headers: dict[str, str]) -> None:
    command = wire.Pub(qname="a1", message="x", headers=headers)

    assert permissions.refusal_of(command, gate(grant("t", "a*", "publish,fetch")).login("t")) is not None
    assert permissions.refusal_of(command, gate(grant("t", "a*", "publish,admin")).login("t")) is None


def test_redrive_without_the_right_to_admin_is_told_which_token_it_needs() -> None:
    followup = wire.Followup(qname="a1", message="x", headers={"wakeq-redriven": "1"})
    command = wire.Ack(qname="a1.dead", uid="u", publish=[followup])

    found = permissions.refusal_of(command, gate(grant("t", "a*", "publish,fetch")).login("t"))

    assert str(found).endswith("for a redrive or an import ask for a token with the right to admin for 'a1'")
    assert permissions.refusal_of(command, gate(grant("t", "a*", "publish,fetch,admin")).login("t")) is None


@pytest.mark.parametrize("headers", [{"wakeq": "1"}, {"x-wakeq-origin": "b"}, {"origin": "wakeq-origin"}, {}])
def test_headers_of_other_names_need_the_right_to_publish_only(headers: dict[str, str]) -> None:
    access = gate(grant("t", "a*", "publish")).login("t")
    in_block = wire.PubBlock(qname="a1", rows=1, columns=["headers"], block=packed(headers))

    assert permissions.refusal_of(wire.Pub(qname="a1", message="x", headers=headers), access) is None
    assert permissions.refusal_of(in_block, access) is None


NO_TEXT = pack([("headers", [b"\x81\xa8wakeq-\xff\xff\xa1x"])])


def test_unreadable_block_is_not_refused_by_the_permission_check() -> None:
    access = gate(grant("t", "a*", "publish")).login("t")
    block = packed(ORIGIN)

    for rows, bad in ((1, block[:-8]), (2, block), (1, pack([("headers", [b"\x81wakeq-"])])), (1, NO_TEXT)):
        command = wire.PubBlock(qname="a1", rows=rows, columns=["headers"], block=bad)
        assert permissions.refusal_of(command, access) is None


def test_publish_refused_for_its_headers_does_not_hurt_its_neighbours(guarded: tuple[Broker, Gate]) -> None:
    client = guarded[0].client()
    hello(client, "web")

    replies = client.ask(
        *({"cmd": "PUB", "qname": "q1", "message": "x", "headers": headers} for headers in ({"k": "v"}, ORIGIN, {}))
    )

    assert [reply.get("err", "ok") for reply in replies] == ["ok", "BAD_FIELD", "ok"]


def test_broker_without_tokens_takes_headers_of_its_own(broker: Broker) -> None:
    reply = broker.client().call("PUB", "a1.dead", message="x", headers={"wakeq-origin": "b1"})

    assert reply["cmd"] == "ok"
