"""QueueStaging: claims of epochs and stashed publishes, as a client of the worker protocol sees them."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.broker import Broker, Client
from tests.helpers.by_hand import Json
from tests.helpers.hand_cluster import HandCluster
from wakeq.actors.operator_messages import Requeue
from wakeq.protocol import staging
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import Claim, ClaimAction, Draft, Publish, Result, Results, Unstash, UnstashAction
from wakeq.protocol.ledger import Ledger
from wakeq.protocol.publishers import Limits
from wakeq.protocol.uid import parse, uid_of
from wakeq.protocol.wire.worker_commands import STASH_PARTS_MAX


def stage(client: Client, epoch: int, **fields: Any) -> Json:
    return client.call("STAGE", "q", source="s", epoch=epoch, **fields)


def read(client: Client, epoch: int, slice: int = 0, **fields: Any) -> list[str]:
    reply = client.call("SLICE", "q", source="s", epoch=epoch, slice=slice, **fields)
    assert reply["cmd"] == "slice", reply
    return [message["msg"] for message in reply["messages"]]


def publish(client: Client, *bodies: str, **fields: Any) -> list[str]:
    uids: list[str] = client.call("PUB", "q", messages=list(bodies), **fields)["uids"]
    return uids


def stash(client: Client, name: str, *bodies: str, **fields: Any) -> Json:
    return client.call("STASH", "q", stash=name, messages=list(bodies), **fields)


def unstash(client: Client, epoch: int, *stashes: tuple[str, int]) -> Json:
    return client.call("UNSTASH", "q", writer="w", epoch=epoch, stashes=stashes)


def fetched(client: Client) -> list[str]:
    reply = client.call("FET", "q", count=100)
    return [message["msg"] for message in reply.get("messages", [])]


# Claims -------------------------------------------------------------------------------------------------------------


def test_a_claim_is_cut_into_slices_in_the_order_of_the_line(client: Client) -> None:
    publish(client, "b", "c", "d", "e")
    client.publish("q", "a", priority=-1)

    reply = stage(client, 1, slices=2)

    assert reply["sizes"] == [3, 2]
    assert [read(client, 1, 0), read(client, 1, 1)] == [["a", "b", "c"], ["d", "e"]]
    assert client.finds_nothing("q")


def test_an_epoch_that_is_staged_again_is_the_same_whatever_came_meanwhile(client: Client) -> None:
    publish(client, "a", "b")
    first = stage(client, 1)
    publish(client, "c")

    assert stage(client, 1, count=1, slices=2) == first
    assert read(client, 1) == ["a", "b"]


def test_the_same_epoch_asked_for_twice_at_once_is_made_once(client: Client, broker: Broker) -> None:
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


def test_nothing_in_line_makes_no_epoch(client: Client) -> None:
    publish(client, "a", delay=9)

    assert stage(client, 1)["cmd"] == "nomsg"
    client.broker.advance(10)
    assert stage(client, 1)["sizes"] == [1]


def test_settling_acknowledges_every_epoch_up_to_one_and_again_nothing(client: Client) -> None:
    publish(client, *"abc")
    stage(client, 1, count=1)
    stage(client, 2, count=1)

    counts = [client.call("SETTLE", "q", source="s", epoch=epoch)["count"] for epoch in (2, 2, 9)]

    assert counts == [2, 0, 0]
    assert fetched(client) == ["c"]
    assert client.figures("q")["acked"] == 2


def test_a_source_is_told_which_epoch_to_stage_next(client: Client, broker: Broker) -> None:
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


def test_a_source_has_two_open_epochs_at_most(client: Client) -> None:
    publish(client, *"abc")
    stage(client, 1, count=1)
    stage(client, 2, count=1)

    assert stage(client, 3)["err"] == "BUSY"
    client.call("SETTLE", "q", source="s", epoch=1)
    assert stage(client, 3)["sizes"] == [1]


def test_a_claim_that_is_not_renewed_lapses_and_its_epoch_is_fenced(client: Client) -> None:
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


def test_who_settles_again_is_told_apart_from_who_comes_too_late(client: Client, broker: Broker) -> None:
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


def test_who_settles_what_is_just_lapsing_comes_too_late_as_well(client: Client, broker: Broker) -> None:
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


def test_a_renewed_claim_stays(client: Client) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)
    client.broker.advance(9)

    assert client.call("RENEW", "q", source="s", timeout=20)["epochs"] == 1

    client.broker.advance(19)
    assert read(client, 1) == ["a"]
    client.broker.advance(2)
    assert fetched(client) == ["a"]


def test_a_renewal_that_stands_before_the_end_in_the_log_makes_it_void(client: Client, broker: Broker) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)
    broker.advance(9)
    broker.log_disk.held = True
    client.send({"cmd": "RENEW", "qname": "q", "source": "s", "timeout": 30})
    broker.settle()
    broker.queue("q").leases.ends.set(("c", "s"), {1: 0})  # type: ignore[union-attr]  # as if it did not know of that
    broker.advance(2)
    broker.log_disk.held = False
    broker.log_disk.complete()
    client.take()

    assert read(client, 1) == ["a"]
    broker.check("q")


def test_a_renewal_that_comes_too_late_in_the_log_leaves_no_note_about_an_item_that_it_has_not(
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
    assert broker.queue("q")._unchanged == []


def test_what_lapses_for_the_last_time_becomes_a_dead_letter(client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    publish(client, "a", "b")
    stage(client, 1, timeout=10)

    client.broker.advance(11)

    assert client.finds_nothing("q")
    assert client.fetch("q.dead")["msg"] == "a"
    assert client.figures("q")["staged"] == 0


@pytest.mark.parametrize("how", ["ACK", "NACK"])
def test_what_somebody_settles_by_its_uid_is_left_out(client: Client, how: str) -> None:
    uids = publish(client, "a", "b")
    stage(client, 1)

    client.call(how, "q", uid=uids[0])

    assert read(client, 1) == ["b"]
    assert fetched(client) == ([] if how == "ACK" else ["a"])


@pytest.mark.parametrize("delay", [0, 5])
def test_what_was_given_back_by_its_uid_is_not_acknowledged_with_its_epoch(client: Client, delay: int) -> None:
    uids = publish(client, "a", "b")
    stage(client, 1)
    client.call("NACK", "q", uid=uids[0], delay=delay)

    settled = client.call("SETTLE", "q", source="s", epoch=1)

    assert settled["count"] == 1
    client.broker.advance(delay)
    assert fetched(client) == ["a"]
    client.broker.check("q")


def test_a_touch_gives_no_message_of_a_claim_an_end_of_its_own(client: Client) -> None:
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


def test_a_purge_ends_claims_with_their_messages(client: Client) -> None:
    publish(client, "a")
    stage(client, 1, timeout=10)

    client.call("PURGE", "q")

    assert client.call("SLICE", "q", source="s", epoch=1)["err"] == "EPOCH_EXPIRED"
    client.broker.advance(11)
    publish(client, "b")
    assert stage(client, 2)["sizes"] == [1]


def test_a_source_is_forgotten_a_month_after_its_last_use_or_after_a_day_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, day_ms = Ledger("q", 1, Policies(), Limits()), 86_400_000
    ledger.publish(Publish("q", [Draft(b"a")] * 3), 0)

    def claim(source: str, number: int, at_ms: int, *, open_until_ms: int = 0) -> Results:
        until_ms = open_until_ms or at_ms + 1
        staged = Claim("q", 1, ClaimAction.STAGED, source, 1, [number], first_sequence=number, until_ms=until_ms)
        results = ledger.claim(staged, 1, at_ms)
        if not open_until_ms:
            ledger.claim(Claim("q", 1, ClaimAction.LAPSED, source, 1, [number], [(1, number)]), 1, at_ms + 1)
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


def test_peek_and_stats_know_what_is_staged(client: Client) -> None:
    publish(client, *"abc")
    stage(client, 1, count=2, timeout=30)
    stash(client, "t", "d")

    figures = client.figures("q")
    states = [row["state"] for row in client.call("PEEK", "q", state="any")["messages"]]

    assert [figures[name] for name in ("ready", "delayed", "leased", "staged", "stashed", "size")] == [1, 0, 2, 2, 1, 2]
    assert states == ["staged", "staged", "ready", "stashed"]
    (row,) = client.call("PEEK", "q", state="leased", count=1)["messages"]
    assert row["until_ms"] == client.broker.now_ms() + 30_000


# Stashes ------------------------------------------------------------------------------------------------------------


def test_what_is_stashed_is_seen_only_when_it_is_published(client: Client) -> None:
    stash(client, "t1", "a", "b")
    stash(client, "t2", "c")
    stash(client, "left", "x")
    assert fetched(client) == []

    assert unstash(client, 1, ("t1", 2), ("t2", 1))["rows"] == 3

    assert fetched(client) == ["a", "b", "c"]


@pytest.mark.parametrize("follow_ups", [[], [{"qname": "next", "message": "x"}]])
def test_what_is_stashed_is_not_acknowledged_by_who_guesses_its_uid(client: Client, follow_ups: list[Json]) -> None:
    published = publish(client, "seen")[0]
    stash(client, "t", "a")
    guessed = uid_of(parse(published)[0], 2)

    client.call("ACK", "q", uid=guessed, **({"publish": follow_ups} if follow_ups else {}))

    assert fetched(client) == ["seen"]
    assert unstash(client, 1, ("t", 1))["rows"] == 1
    assert fetched(client) == ["a"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_stashed_expires_once_it_is_published(broker: Broker, restarts: bool) -> None:
    client = broker.client()
    stash(client, "t", "a", "b", expires=5)
    stash(client, "dropped", "c", expires=5)
    if restarts:
        broker.crash_and_restart()
        client = broker.client()
    broker.advance(9)
    stashed = client.figures("q")["stashed"]

    assert unstash(client, 1, ("t", 2))["rows"] == 2
    client.call("UNSTASH", "q", stashes=[("dropped", 1)])
    assert fetched(client) == []
    broker.advance(1)

    figures = client.figures("q")
    assert (stashed, *(figures[name] for name in ("published", "expired", "size"))) == (3, 2, 2, 0)


def test_an_epoch_that_is_published_again_publishes_nothing(client: Client) -> None:
    stash(client, "t", "a")
    unstash(client, 1, ("t", 1))
    stash(client, "again", "a")

    assert unstash(client, 0).get("epoch") == 1
    assert unstash(client, 1, ("again", 1))["rows"] == 0

    assert fetched(client) == ["a"]
    assert client.figures("q")["stashed"] == 0


def test_an_epoch_that_is_older_than_the_last_one_is_refused_and_what_was_stashed_stays(client: Client) -> None:
    stash(client, "t", "a")
    unstash(client, 5, ("t", 1))
    stash(client, "another", "b")

    for epoch in (1, 4):
        refused = unstash(client, epoch, ("another", 1))
        assert (refused["err"], "another writer" in refused["detail"]) == ("EPOCH_OLD", True)

    assert unstash(client, 6, ("another", 1))["rows"] == 1
    assert fetched(client) == ["a", "b"]


def test_a_part_that_is_sent_twice_is_stored_once(client: Client) -> None:
    for _ in range(2):
        stash(client, "t", "a")
        stash(client, "t", "b", part=1)

    assert unstash(client, 1, ("t", 2))["rows"] == 2
    assert fetched(client) == ["a", "b"]


def test_a_stash_has_so_many_parts_and_no_more(client: Client) -> None:
    assert stash(client, "t", "a", part=STASH_PARTS_MAX - 1)["cmd"] == "okrows"

    reply = stash(client, "t", "b", part=STASH_PARTS_MAX)

    assert (reply["cmd"], reply["err"]) == ("nok", "BAD_FIELD")
    assert "from 0 to 9999; put more messages into each, or begin another stash" in reply["detail"]
    assert unstash(client, 1, ("t", 1))["rows"] == 1


@pytest.mark.parametrize(
    ("bound", "command", "words"),
    [
        ("SOURCES_MAX", "STAGE", "settle one first"),
        ("STASHES_MAX", "STASH", "publish or drop some of them first"),
        ("WRITERS_MAX", "UNSTASH", "give them fewer names"),
    ],
)
def test_who_meets_a_bound_of_what_is_staged_hears_which(
    client: Client, monkeypatch: pytest.MonkeyPatch, bound: str, command: str, words: str
) -> None:
    monkeypatch.setattr(staging, bound, 1)
    publish(client, "a", "b")
    about: list[Json] = [
        {"STAGE": {"source": name, "epoch": 1}, "STASH": {"stash": name, "messages": ["x"]},
         "UNSTASH": {"writer": name, "epoch": 1, "stashes": []}}[command] for name in ("one", "two")
    ]  # fmt: skip

    first, second = (client.call(command, "q", **fields) for fields in about)

    assert (first["cmd"] != "nok", second["err"]) == (True, "BUSY")
    assert words in second["detail"]


def test_of_too_many_writers_the_one_unused_longest_is_forgotten(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "WRITERS_MAX", 2)

    def publishes(writer: str) -> bool:
        return bool(client.call("UNSTASH", "q", writer=writer, epoch=1, stashes=[])["cmd"] == "okrows")

    stash(client, "t", "a")
    assert [publishes("one"), publishes("two"), publishes("three")] == [True, True, False]

    client.broker.advance(staging.KEPT_MS_MIN / 1000)

    assert publishes("three")
    assert [client.call("UNSTASH", "q", writer=name, stashes=[]).get("epoch") for name in ("one", "two")] == [None, 1]


def test_nodes_forget_the_same_writer_whether_they_were_restarted_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "WRITERS_MAX", 2)

    def publishes(ledger: Ledger, writer: str, at_ms: int) -> None:
        ledger.unstash(Unstash("q", UnstashAction.PUBLISHED, [], writer, 1), at_ms)

    went_on, restarted = (Ledger("q", 1, Policies(), Limits()) for _ in range(2))
    for writer in ("two", "one"):
        publishes(went_on, writer, 0)  # in one moment
    rows = [(name, value) for name, value in went_on.collect().staged if value is not None]
    restarted.restore_staging(rows)
    for ledger in (went_on, restarted):
        publishes(ledger, "three", staging.KEPT_MS_MIN)

    assert went_on.staging is not None
    assert restarted.staging is not None
    assert set(went_on.staging.writers) == set(restarted.staging.writers)


def publish_job(client: Client, job: str, *stashes: tuple[str, int]) -> Json:
    return client.call("UNSTASH", "q", writer=job, stashes=stashes)


def test_a_job_that_has_no_epoch_publishes_once(client: Client, broker: Broker) -> None:
    stash(client, "t", "a")
    assert publish_job(client, "job", ("t", 1))["rows"] == 1
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    stash(client, "again", "a")

    assert publish_job(client, "job", ("again", 1))["rows"] == 0

    assert (fetched(client), client.figures("q")["stashed"]) == (["a"], 0)


def test_a_job_is_forgotten_after_minutes_and_takes_no_place_from_a_writer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "JOBS_MAX", 1)
    monkeypatch.setattr(staging, "WRITERS_MAX", 1)
    for name in "abc":
        stash(client, name, name)
    unstash(client, 1, ("a", 1))
    publish_job(client, "one", ("b", 1))

    refused = publish_job(client, "two", ("c", 1))
    client.broker.advance(staging.JOB_KEPT_MS / 1000)

    assert (refused["err"], "jobs within 15 minutes" in refused["detail"]) == ("BUSY", True)
    assert publish_job(client, "two", ("c", 1))["rows"] == 1
    known = client.broker.queue("q").ledger.staging
    assert known is not None
    assert (list(known.jobs), list(known.writers)) == (["two"], ["w"])


def test_a_part_that_is_sent_again_keeps_its_stash_for_longer(client: Client) -> None:
    stash(client, "t", "a", keep=60)
    client.broker.advance(59)
    stash(client, "t", "a", keep=60)
    client.broker.advance(59)

    assert unstash(client, 1, ("t", 1))["rows"] == 1


def test_a_look_in_blocks_leaves_out_what_is_stashed(client: Client) -> None:
    stash(client, "t", "a", "b")
    publish(client, "c")

    before = client.call("PEEKB", "q", count=9)
    unstash(client, 1, ("t", 2))

    assert (before["rows"], before["last"]) == (1, 3)
    assert client.call("PEEKB", "q", count=9)["rows"] == 3


def test_all_stashes_are_published_or_none(client: Client) -> None:
    stash(client, "t", "a", keep=10)
    stash(client, "u", "b", keep=60)

    for missing in (("v", 1), ("t", 2)):
        assert unstash(client, 1, ("u", 1), missing)["err"] == "STASH_EXPIRED"

    client.broker.advance(11)
    assert unstash(client, 1, ("t", 1), ("u", 1))["err"] == "STASH_EXPIRED"
    assert fetched(client) == []
    assert unstash(client, 1, ("u", 1))["rows"] == 1


def test_what_nobody_publishes_goes(client: Client, broker: Broker) -> None:
    stash(client, "dropped", "a")
    stash(client, "lapsed", "b", keep=10)

    client.call("UNSTASH", "q", stashes=[("dropped", 1)])
    broker.advance(11)

    assert client.figures("q")["stashed"] == client.figures("q")["size"] == 0
    assert client.figures("q")["published"] == 0
    broker.flush()
    broker.crash_and_restart()
    assert fetched(broker.client()) == []


def test_delay_and_priority_of_a_stashed_message_are_kept(client: Client) -> None:
    late = {"message": "late", "delay": 5}
    client.call("STASH", "q", stash="t", messages=["b", {"message": "a", "priority": -1}, late])

    unstash(client, 1, ("t", 3))

    assert fetched(client) == ["a", "b"]
    client.broker.advance(6)
    assert fetched(client) == ["late"]


def test_stashes_outlive_crashes_cuts_and_restarts(client: Client, broker: Broker) -> None:
    stash(client, "t", "a")
    broker.flush()
    stash(client, "t", "b", part=1)
    broker.crash_and_restart()
    client = broker.client()
    assert fetched(client) == []
    unstash(client, 7, ("t", 2))
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()

    assert unstash(client, 7)["rows"] == 0
    assert fetched(client) == ["a", "b"]


def test_a_limit_of_the_queue_counts_what_is_stashed(client: Client) -> None:
    client.call("CREATE", "q", max_size=2)
    stash(client, "t", "a", "b")

    assert stash(client, "u", "c")["err"] == "QUEUE_FULL"
    assert client.call("PUB", "q", message="d")["err"] == "QUEUE_FULL"
    assert unstash(client, 1, ("t", 2))["rows"] == 2


def test_what_is_stashed_is_not_let_go_by_an_operator(client: Client, broker: Broker) -> None:
    stash(client, "t", "a")
    ledger = broker.queue("q").ledger
    (number,) = ledger.living_numbers()

    outcome = broker.operate("q", lambda me: Requeue(me, "q", [uid_of(ledger.id, number)]))

    assert outcome.results == [Result.UNKNOWN]
    assert fetched(client) == []


def test_publishing_a_stash_wakes_a_sleeper(client: Client, worker: Client) -> None:
    stash(client, "t", "a")
    worker.fall_asleep("q")

    unstash(client, 1, ("t", 1))

    assert worker.words() == ["awk"]


def test_what_is_staged_in_a_queue_that_does_not_exist_is_not_found(client: Client) -> None:
    refused = [
        stage(client, 1),
        client.call("SLICE", "q", source="s", epoch=1),
        client.call("RENEW", "q", source="s"),
        client.call("SETTLE", "q", source="s", epoch=1),
        client.call("PEEKB", "q"),
        unstash(client, 1),
    ]
    assert [reply["err"] for reply in refused] == ["Q_NOT_FOUND"] * 6


# Looks, and others who lead -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [{"cmd": "PEEK"}, {"cmd": "PEEKB"}, {"cmd": "FET"}])
def test_who_looks_while_the_queue_is_deleted_is_answered(client: Client, broker: Broker, command: Json) -> None:
    publish(client, "a")
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    broker.reader_disk.held = True
    client.send({**command, "qname": "q"})
    broker.settle()

    broker.client().call("DROP", "q")
    broker.flush()

    assert client.words() in (["nok"], ["nomsg"])
    broker.reader_disk.held = False
    broker.reader_disk.complete()
    assert client.words() == []


def test_what_is_read_for_a_look_is_whole_although_the_rest_is_dropped_meanwhile(
    client: Client, broker: Broker
) -> None:
    publish(client, *"abc")
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    publish(client, "d")
    broker.reader_disk.held = True
    client.send({"cmd": "PEEKB", "qname": "q"})
    broker.settle()
    broker.queue("q").bodies.clear()

    broker.reader_disk.held = False
    broker.reader_disk.complete()

    assert [reply["rows"] for reply in client.take()] == [4]


def test_what_is_staged_is_there_for_whoever_leads_next(directory: Path) -> None:
    cluster = HandCluster(directory)
    cluster.start()
    leader = cluster.leader()
    assert leader is not None
    client = leader.client()
    publish(client, *"abc")
    stage(client, 1, count=2, timeout=60)
    stash(client, "t", "d")
    cluster.advance(0.2)
    others = cluster.others(leader)

    leader.kill()
    cluster.until(lambda: cluster.leader(others) is not None, "another node serves")
    found = cluster.leader(others)
    assert found is not None
    client = found.client()

    assert [read(client, 1), fetched(client)] == [["a", "b"], ["c"]]
    assert stage(client, 1)["sizes"] == [2]
    assert unstash(client, 1, ("t", 1))["rows"] == 1
    cluster.advance(70)
    assert sorted(fetched(client)) == ["a", "b", "c", "d"]
    cluster.close()


def test_stashes_leave_nothing_behind_in_memory(client: Client, broker: Broker) -> None:
    stash(client, "t", "a", "b")
    broker.flush()
    broker.crash_and_restart()
    process = broker.queue("q")
    assert process.leases is not None
    assert process.leases.delayed is None

    unstash(broker.client(), 1, ("t", 2))

    assert process.ledger.chunks[0].only_sizes


def test_what_a_repeated_claim_took_beside_the_first_one_keeps_its_place(client: Client, broker: Broker) -> None:
    client.call("PUB", "q", messages=[str(number) for number in range(6)])
    broker.log_disk.held = True
    for claimant in (client, broker.client()):
        claimant.send({"cmd": "STAGE", "qname": "q", "source": "s", "epoch": 1, "count": 2})
        broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.words() == ["okstage"]
    assert fetched(client) == ["2", "3", "4", "5"]
