"""QueueStaging: claims of epochs, as a client of the worker protocol sees them."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.staging import fetched, publish, read, stage
from tests.helpers.steps import in_one_go
from wakeq.actors.queue import staging as queue_staging
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Claim, ClaimAction, Draft, Publish, Result, Results
from wakeq.protocol.queue.ledger import staging
from wakeq.protocol.queue.ledger.chunks import CHUNK
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits


@pytest.fixture(autouse=True, params=["in one go", "in steps"])
def way(request: pytest.FixtureRequest) -> None:
    """Apply each entry in one go, or in steps of two messages."""
    if request.param == "in steps":
        request.getfixturevalue("small_steps")


def test_claim_is_cut_into_slices_in_the_order_of_the_line(client: Client) -> None:
    publish(client, "b", "c", "d", "e")
    client.publish("q", "a", priority=-1)

    reply = stage(client, 1, slices=2)

    assert reply["sizes"] == [3, 2]
    assert [read(client, 1, 0), read(client, 1, 1)] == [["a", "b", "c"], ["d", "e"]]
    assert client.finds_nothing("q")


def test_claim_behind_a_publish_of_its_own_connection_finds_the_message(client: Client) -> None:
    client.call("CREATE", "q")

    _, staged = client.ask(
        {"cmd": "PUB", "qname": "q", "message": "a"}, {"cmd": "STAGE", "qname": "q", "source": "s", "epoch": 1}
    )

    assert staged["cmd"] == "okstage"
    assert read(client, 1) == ["a"]


def test_epoch_that_is_staged_again_is_the_same_whatever_came_meanwhile(client: Client) -> None:
    publish(client, "a", "b")
    first = stage(client, 1)
    publish(client, "c")

    assert stage(client, 1, count=1, slices=2) == first
    assert read(client, 1) == ["a", "b"]


def test_epoch_asked_for_twice_at_once_is_made_once(client: Client, broker: Broker) -> None:
    publish(client, "a", "b")
    command = {"cmd": "STAGE", "qname": "q", "source": "s", "epoch": 1, "count": 1}
    other = broker.client()
    other.send(command)
    client.send(command)

    replies = [*other.take(), *client.take()]

    assert [reply["sizes"] for reply in replies] == [[1], [1]]
    assert fetched(client) == ["b"]


def test_reading_a_slice_changes_nothing_and_goes_in_steps(client: Client) -> None:
    publish(client, *"abcde")
    stage(client, 1)

    first = client.call("SLICE", "q", source="s", epoch=1, count=2)
    rest = client.call("SLICE", "q", source="s", epoch=1, offset=first["next"], count=9)

    assert (first["next"], "next" in rest) == (2, False)
    assert [m["msg"] for m in first["messages"] + rest["messages"]] == list("abcde")
    assert read(client, 1) == list("abcde")


def test_stage_without_a_ready_message_uses_no_epoch(client: Client) -> None:
    publish(client, "a", delay=9)

    assert stage(client, 1)["cmd"] == "nomsg"
    client.broker.advance(10)
    assert stage(client, 1)["sizes"] == [1]


def test_settle_acknowledges_every_epoch_up_to_its_own_and_nothing_when_repeated(client: Client) -> None:
    publish(client, *"abc")
    stage(client, 1, count=1)
    stage(client, 2, count=1)

    counts = [client.call("SETTLE", "q", source="s", epoch=epoch)["count"] for epoch in (2, 2, 9)]

    assert counts == [2, 0, 0]
    assert fetched(client) == ["c"]
    assert client.figures("q")["acked"] == 2


def test_source_is_told_which_epoch_to_stage_next(client: Client, broker: Broker) -> None:
    publish(client, *"abc")

    def next_epoch() -> int:
        reply = client.call("SETTLE", "q", source="s", epoch=0)
        assert reply["count"] == 0
        return int(reply["next"])

    assert next_epoch() == 1
    stage(client, 4, count=1, timeout=10)
    stage(client, 7, count=1, timeout=60)
    assert next_epoch() == 4, "it is open"
    broker.log_disk.held = True
    broker.advance(11)
    client.send({"cmd": "SETTLE", "qname": "q", "source": "s", "epoch": 0})
    broker.settle()
    assert [reply["next"] for reply in client.door.sent[-1:]] == [7], "the other one is about to end"
    broker.log_disk.held = False
    broker.log_disk.complete()
    client.take()
    client.call("SETTLE", "q", source="s", epoch=7)
    assert next_epoch() == 8


def test_source_has_two_open_epochs_at_most(client: Client) -> None:
    publish(client, *"abc")
    stage(client, 1, count=1)
    stage(client, 2, count=1)

    assert stage(client, 3)["err"] == "BUSY"
    client.call("SETTLE", "q", source="s", epoch=1)
    assert stage(client, 3)["sizes"] == [1]


def test_claim_that_is_not_renewed_lapses_and_its_epoch_is_fenced(client: Client) -> None:
    publish(client, "a", "b")
    stage(client, 1, timeout=10)

    client.broker.advance(11)

    assert fetched(client) == ["a", "b"]
    publish(client, "c")
    refused = [
        client.call("SLICE", "q", source="s", epoch=1),
        client.call("RENEW", "q", source="s"),
        stage(client, 1),
        client.call("SETTLE", "q", source="s", epoch=1),
    ]
    assert [reply["err"] for reply in refused] == ["EPOCH_EXPIRED"] * 4
    assert stage(client, 2)["sizes"] == [1]


def test_repeated_settle_is_told_apart_from_one_that_is_too_late(client: Client, broker: Broker) -> None:
    publish(client, "a", "b")
    stage(client, 1, count=1)
    client.call("SETTLE", "q", source="s", epoch=1)
    stage(client, 2, timeout=10)
    broker.advance(11)
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()

    assert client.call("SETTLE", "q", source="s", epoch=1)["count"] == 0
    assert client.call("SETTLE", "q", source="s", epoch=2)["err"] == "EPOCH_EXPIRED"


def test_settle_of_a_claim_that_is_just_lapsing_is_too_late(client: Client, broker: Broker) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)
    broker.log_disk.held = True
    broker.advance(11)
    client.send({"cmd": "SETTLE", "qname": "q", "source": "s", "epoch": 1})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply["err"] for reply in client.take()] == ["EPOCH_EXPIRED"]
    assert fetched(client) == ["a"]
    broker.check("q")


def test_lapsing_claim_keeps_lapsing_after_another_entry_about_its_source(client: Client, broker: Broker) -> None:
    publish(client, "a", "b")
    stage(client, 1, count=1, timeout=10)
    broker.log_disk.held = True
    broker.advance(11)
    queue_staging._watch(broker.queue("q"), ("c", "s"))  # as after any entry about the source

    ends = broker.queue("q").leases.staged_ends  # type: ignore[union-attr]
    assert ends is not None
    assert ends.lapsing == {("c", "s", 1)}
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    assert sorted(fetched(client)) == ["a", "b"]


def test_renewed_claim_stays(client: Client) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)
    client.broker.advance(9)

    assert client.call("RENEW", "q", source="s", timeout=20)["epochs"] == 1

    client.broker.advance(19)
    assert read(client, 1) == ["a"]
    client.broker.advance(2)
    assert fetched(client) == ["a"]


def test_renewal_that_stands_before_the_end_in_the_log_makes_it_void(client: Client, broker: Broker) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)
    broker.advance(9)
    broker.log_disk.held = True
    client.send({"cmd": "RENEW", "qname": "q", "source": "s", "timeout": 30})
    broker.settle()
    broker.queue("q").leases.staged_ends.set(("c", "s"), {1: 0})  # type: ignore[union-attr]  # as if it did not know of that
    broker.advance(2)
    broker.log_disk.held = False
    broker.log_disk.complete()
    client.take()

    assert read(client, 1) == ["a"]
    broker.check("q")


def test_renewal_that_comes_too_late_in_the_log_leaves_no_note_about_an_item_that_it_has_not(
    client: Client, worker: Client, broker: Broker
) -> None:
    publish(client, "a")
    stage(client, 1)
    broker.log_disk.held = True
    client.send({"cmd": "SETTLE", "qname": "q", "source": "s", "epoch": 1})
    broker.settle()
    worker.send({"cmd": "RENEW", "qname": "q", "source": "s"})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert worker.take()[0]["err"] == "EPOCH_EXPIRED"
    assert list(broker.queue("q").unchanged) == []


def test_message_that_lapses_for_the_last_time_becomes_a_dead_letter(client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    publish(client, "a", "b")
    stage(client, 1, timeout=10)

    client.broker.advance(11)

    assert client.finds_nothing("q")
    assert client.fetch("q.dead")["msg"] == "a"
    assert client.figures("q")["staged"] == 0


@pytest.mark.parametrize("how", ["ACK", "NACK"])
def test_staged_message_that_is_ended_by_its_uid_is_left_out_of_the_claim(client: Client, how: str) -> None:
    uids = publish(client, "a", "b")
    stage(client, 1)

    client.call(how, "q", uid=uids[0])

    assert read(client, 1) == ["b"]
    assert fetched(client) == ([] if how == "ACK" else ["a"])


@pytest.mark.parametrize("delay", [0, 5])
def test_message_released_by_its_uid_is_not_acknowledged_with_its_claim(client: Client, delay: int) -> None:
    uids = publish(client, "a", "b")
    stage(client, 1)
    client.call("NACK", "q", uid=uids[0], delay=delay)

    settled = client.call("SETTLE", "q", source="s", epoch=1)

    assert settled["count"] == 1
    client.broker.advance(delay)
    assert fetched(client) == ["a"]
    client.broker.check("q")


def test_touch_gives_no_message_of_a_claim_an_end_of_its_own(client: Client) -> None:
    (uid,) = publish(client, "a")
    stage(client, 1, timeout=60)

    assert not client.call("TOUCH", "q", uid=uid, timeout=5)["known"]

    client.broker.advance(10)
    assert read(client, 1) == ["a"]


def test_claims_outlive_crashes_cuts_and_restarts(client: Client, broker: Broker) -> None:
    publish(client, *"abcd")
    stage(client, 1, count=2)
    broker.flush()
    stage(client, 2, count=1, timeout=30)
    broker.crash_and_restart()
    client = broker.client()

    assert [read(client, 1), read(client, 2)] == [["a", "b"], ["c"]]
    assert fetched(client) == ["d"]
    broker.advance(31)
    assert client.call("SLICE", "q", source="s", epoch=2)["err"] == "EPOCH_EXPIRED"
    assert client.call("SETTLE", "q", source="s", epoch=1)["count"] == 2
    broker.flush()
    broker.crash_and_restart()
    assert fetched(broker.client()) == ["c"]


def test_bodies_that_are_no_longer_in_memory_are_read(client: Client, broker: Broker) -> None:
    publish(client, *"abc")
    stage(client, 1)
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()

    assert len(broker.queue("q").bodies) == 0
    assert read(client, 1) == ["a", "b", "c"]
    assert len(broker.queue("q").bodies) == 0


def test_purge_ends_claims_with_their_messages(client: Client) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)

    client.call("PURGE", "q")

    assert client.call("SLICE", "q", source="s", epoch=1)["err"] == "EPOCH_EXPIRED"
    client.broker.advance(11)
    publish(client, "b")
    assert stage(client, 2)["sizes"] == [1]


def test_source_is_forgotten_a_month_after_its_last_use_or_after_a_day_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, day_ms = Ledger("q", 1, Policies(), Limits()), 86_400_000
    ledger.publish(Publish("q", [Draft(b"a")] * 3), 0)

    def claim(source: str, number: int, at_ms: int, *, open_until_ms: int = 0) -> Results:
        until_ms = open_until_ms or at_ms + 1
        staged = Claim("q", 1, ClaimAction.STAGED, source, 1, [number], first_sequence=number, until_ms=until_ms)
        results = in_one_go(ledger.claim(staged, 1, at_ms))
        if not open_until_ms:
            in_one_go(ledger.claim(Claim("q", 1, ClaimAction.LAPSED, source, 1, [number], [(1, number)]), 1, at_ms + 1))
        return results

    claim("first", 1, 0)
    claim("second", 1, 29 * day_ms)
    assert ledger.staging is not None
    assert list(ledger.staging.sources) == ["first", "second"]
    claim("open", 2, 30 * day_ms, open_until_ms=60 * day_ms)
    assert list(ledger.staging.sources) == ["second", "open"]
    monkeypatch.setattr(staging, "SOURCES_MAX", 2)

    assert claim("third", 3, 30 * day_ms - 1) == [Result.BUSY]
    assert claim("third", 3, 31 * day_ms) == [1]
    assert list(ledger.staging.sources) == ["open", "third"]
    assert claim("fourth", 1, 40 * day_ms) == [Result.BUSY], "the oldest one is open"


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_choice_of_forgotten_sources_does_not_depend_on_their_order(names: str) -> None:
    ledger, day_ms = Ledger("q", 1, Policies(), Limits()), 86_400_000
    ledger.publish(Publish("q", [Draft(b"a")] * 3), 0)
    for name in names:
        number, until_ms = {"a": (1, 90 * day_ms), "b": (2, 1)}[name]
        staged = Claim("q", 1, ClaimAction.STAGED, name, 1, [number], first_sequence=number, until_ms=until_ms)
        in_one_go(ledger.claim(staged, 1, 0))
    in_one_go(ledger.claim(Claim("q", 1, ClaimAction.LAPSED, "b", 1, [2], [(1, 2)]), 1, 1))

    new = Claim("q", 1, ClaimAction.STAGED, "new", 1, [3], first_sequence=3, until_ms=90 * day_ms)
    in_one_go(ledger.claim(new, 1, 40 * day_ms))

    assert ledger.staging is not None
    assert set(ledger.staging.sources) == {"a", "new"}


def test_messages_taken_for_a_repeated_claim_keep_their_place(client: Client, broker: Broker) -> None:
    client.call("PUB", "q", messages=[str(number) for number in range(6)])
    broker.log_disk.held = True
    for claimant in (client, broker.client()):
        claimant.send({"cmd": "STAGE", "qname": "q", "source": "s", "epoch": 1, "count": 2})
        broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.words() == ["okstage"]
    assert fetched(client) == ["2", "3", "4", "5"]


def test_message_that_expires_during_a_claim_that_does_not_get_it_is_removed(client: Client, broker: Broker) -> None:
    publish(client, "a")
    client.publish("q", "b", expires=1)
    command = {"cmd": "STAGE", "qname": "q", "source": "s", "epoch": 1, "count": 1}
    broker.log_disk.held = True
    for each in (client, broker.client()):
        each.send(command)
        broker.settle()

    broker.advance(2)
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.advance(1)

    assert list(broker.queue("q").ledger.columns.living_numbers()) == [1]
    broker.check("q")


def test_claim_of_messages_removed_by_an_acknowledgement_before_it_changes_nothing(
    client: Client, broker: Broker
) -> None:
    uids: list[str] = []
    while len(uids) < CHUNK - 1:  # all of a chunk, which is dropped when the last of it goes
        uids += publish(client, *map(str, range(min(100, CHUNK - 1 - len(uids)))))
    for at in range(0, CHUNK - 2, 100):
        client.call("ACK", "q", uids=uids[at : min(CHUNK - 2, at + 100)])
    process, other = broker.queue("q"), broker.client()

    other.send({"cmd": "STAGE", "qname": "q", "source": "s", "epoch": 1, "count": 9})
    client.send({"cmd": "ACK", "qname": "q", "uids": uids[-1:]})
    broker.settle()

    assert broker.queue("q") is process
    broker.check("q")


# --- settled or lapsed -----------------------------------------------------------------------------------------------


def ends(client: Client, *epochs: int) -> list[str]:
    return [stage(client, epoch)["err"].removeprefix("EPOCH_").lower() for epoch in epochs]


@pytest.mark.parametrize("restarts", [False, True])
def test_source_tells_settled_epochs_from_lapsed_ones_as_long_as_it_is_known(broker: Broker, restarts: bool) -> None:
    client = broker.client()
    for epoch in range(1, 8):
        publish(client, "a")
        stage(client, epoch, timeout=10)
        if epoch in (3, 4, 6):
            broker.advance(11)
        else:
            client.call("SETTLE", "q", source="s", epoch=epoch)
    if restarts:
        broker.flush()
        broker.crash_and_restart()
        client = broker.client()

    broker.advance(20 * 86_400)

    assert ends(client, *range(1, 8)) == ["settled", "settled", "expired", "expired", "settled", "expired", "settled"]
    assert broker.queue("q").ledger.staging.sources["s"].settled == [(1, 2), (5, 5), (7, 7)]


def test_epoch_that_was_passed_over_counts_as_settled(client: Client) -> None:
    publish(client, "a", "b")
    stage(client, 2, count=1)
    stage(client, 6, count=1)

    assert ends(client, 3, 5) == ["settled", "settled"]
    assert client.call("SETTLE", "q", source="s", epoch=4)["count"] == 1
    assert client.call("SLICE", "q", source="s", epoch=4)["err"] == "EPOCH_SETTLED"
    assert read(client, 6) == ["b"]


def test_oldest_settled_epochs_count_as_lapsed_if_there_are_too_many_ranges(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "SETTLED_RANGES_MAX", 2)
    for epoch in range(1, 7):
        publish(client, "a")
        stage(client, epoch, timeout=10)
        if epoch % 2:
            client.call("SETTLE", "q", source="s", epoch=epoch)
        else:
            broker.advance(11)

    assert ends(client, *range(1, 7)) == ["expired", "expired", "settled", "expired", "settled", "expired"]


def test_source_that_begins_above_one_counts_what_came_before_as_settled(client: Client) -> None:
    publish(client, "a", "b")
    stage(client, 50, count=1)
    client.call("SETTLE", "q", source="s", epoch=50)
    client.call("PURGE", "q")
    publish(client, "c")
    stage(client, 51)

    assert client.call("SETTLE", "q", source="s", epoch=50)["count"] == 0
    assert stage(client, 50)["err"] == "EPOCH_SETTLED"


@pytest.mark.parametrize("how", ["lapse", "release"])
def test_settle_of_a_later_epoch_leaves_one_that_ended_before(client: Client, broker: Broker, how: str) -> None:
    publish(client, "a", "b")
    stage(client, 1, count=1, timeout=10)
    if how == "lapse":
        broker.advance(11)
    else:
        client.call("RELEASE", "q", source="s")
    client.call("STAGE", "q", source="s", epoch=2)

    assert client.call("SETTLE", "q", source="s", epoch=2)["count"] == 2
    assert client.call("SETTLE", "q", source="s", epoch=1)["err"] == "EPOCH_EXPIRED"


# --- release ---------------------------------------------------------------------------------------------------------


def test_release_returns_all_open_epochs_at_once_and_without_a_failure(client: Client, broker: Broker) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    publish(client, *"abc")
    stage(client, 1, count=2)
    stage(client, 2)

    assert client.call("RELEASE", "q", source="s")["count"] == 3

    assert ends(client, 1, 2) == ["expired", "expired"]
    assert fetched(client) == ["a", "b", "c"]
    assert client.call("RELEASE", "q", source="s")["count"] == 0
    assert client.call("RELEASE", "q", source="nobody")["count"] == 0
    broker.check("q")


def test_release_leaves_other_sources_and_what_was_ended_by_its_uid(client: Client, broker: Broker) -> None:
    uids = publish(client, *"abcd")
    stage(client, 1, count=3)
    stage(client, 1, source="other", count=1)
    client.call("ACK", "q", uid=uids[0])
    client.call("NACK", "q", uid=uids[1], delay=0)
    assert client.fetch("q")["msg"] == "b"

    assert client.call("RELEASE", "q", source="s")["count"] == 1

    assert fetched(client) == ["c"]
    assert client.figures("q")["staged"] == 1
    broker.check("q")


@pytest.mark.parametrize("first", ["lapse", "settle", "release"])
def test_release_behind_another_end_on_its_way_does_nothing(client: Client, broker: Broker, first: str) -> None:
    publish(client, "a", "b", "c")
    stage(client, 1, timeout=10)
    other = broker.client()
    broker.log_disk.held = True
    if first == "lapse":
        broker.advance(11)
    else:
        other.send({"cmd": first.upper(), "qname": "q", "source": "s", "epoch": 1})
        broker.settle()

    client.send({"cmd": "RELEASE", "qname": "q", "source": "s"})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply["count"] for reply in client.take()] == [0]
    assert fetched(client) == ([] if first == "settle" else ["a", "b", "c"])
    broker.check("q")


def test_settle_behind_a_release_on_its_way_is_too_late(client: Client, broker: Broker) -> None:
    publish(client, "a")
    stage(client, 1)
    broker.log_disk.held = True
    client.send({"cmd": "RELEASE", "qname": "q", "source": "s"})
    broker.settle()
    other = broker.client()
    other.send({"cmd": "SETTLE", "qname": "q", "source": "s", "epoch": 1})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply["err"] for reply in other.take()] == ["EPOCH_EXPIRED"]
    assert [reply["count"] for reply in client.take()] == [1]
    assert fetched(client) == ["a"]


def test_staging_of_a_published_epoch_that_is_on_its_way_is_refused() -> None:
    ledger = Ledger("q", 1, Policies(), Limits())
    in_one_go(ledger.publish_in_steps(Publish("q", [Draft(b"a"), Draft(b"b")]), 0))
    staged = Claim("q", 1, ClaimAction.STAGED, "s", 3, [1], first_sequence=1, until_ms=60_000)
    in_one_go(ledger.claim(staged, 1, 0))
    for action in (ClaimAction.READ, ClaimAction.PUBLISHED):
        in_one_go(ledger.claim(Claim("q", 1, action, "s", 3, reader="r", batch=3), 1, 0))

    again = Claim("q", 1, ClaimAction.STAGED, "s", 3, [2], first_sequence=2, until_ms=60_000)

    assert in_one_go(ledger.claim(again, 1, 0)) == [Result.EPOCH_SETTLED]
    assert not ledger.deliveries.is_leased(2)
