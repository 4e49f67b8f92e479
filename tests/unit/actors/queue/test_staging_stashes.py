"""QueueStaging: stashed publishes, as a client of the worker protocol sees them."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.brokers.staging import fetched, publish, publish_job, stash, unstash
from tests.helpers.steps import in_one_go
from wakeq.actors.sessions.operator_mail import Requeue
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Result, Unstash, UnstashAction
from wakeq.protocol.queue.ledger import staging
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.uid import parse, uid_of
from wakeq.protocol.wire.worker.commands import STASH_PARTS_MAX


@pytest.fixture(autouse=True, params=["in one go", "in steps"])
def way(request: pytest.FixtureRequest) -> None:
    """Apply each entry in one go, or in steps of two messages."""
    if request.param == "in steps":
        request.getfixturevalue("small_steps")


def test_stashed_messages_are_delivered_only_once_published(client: Client) -> None:
    stash(client, "t1", "a", "b")
    stash(client, "t2", "c")
    stash(client, "left", "x")
    assert fetched(client) == []

    assert unstash(client, 1, ("t1", 2), ("t2", 1))["rows"] == 3

    assert fetched(client) == ["a", "b", "c"]


def test_stashed_messages_wait_from_the_moment_at_which_they_are_published(broker: Broker, client: Client) -> None:
    stash(client, "t1", "a", "b", "c")
    stash(client, "t2", "d")
    broker.advance(2_999)
    client.publish("q", "early")
    broker.advance(1)
    unstash(client, 1, ("t1", 3))
    broker.advance(1)
    unstash(client, 2, ("t2", 1))
    broker.advance(2)
    client.publish("q", "plain")
    broker.advance(1)

    assert sorted(fetched(client)) == ["a", "b", "c", "d", "early", "plain"]

    timings = broker.queue("q").timings
    assert timings is not None
    assert timings.waited_ms == pytest.approx(5_000 + 3 * 4_000 + 3_000 + 1_000, abs=200)


def test_stashed_messages_count_as_published_once_they_are_and_the_count_never_falls(client: Client) -> None:
    client.publish("q", "before")
    stash(client, "t1", "a", "b")
    stash(client, "dropped", "x")
    counts = [client.figures("q")["published"]]

    unstash(client, 1, ("t1", 2))
    counts.append(client.figures("q")["published"])
    client.call("UNSTASH", "q", stashes=[("dropped", 1)])
    counts.append(client.figures("q")["published"])

    assert counts == [1, 3, 3]


@pytest.mark.parametrize("follow_ups", [[], [{"qname": "next", "message": "x"}]])
def test_stashed_message_is_not_acknowledged_by_a_guessed_uid(client: Client, follow_ups: list[Json]) -> None:
    published = publish(client, "seen")[0]
    stash(client, "t", "a")
    guessed = uid_of(parse(published)[0], 2)

    client.call("ACK", "q", uid=guessed, **({"publish": follow_ups} if follow_ups else {}))

    assert fetched(client) == ["seen"]
    assert unstash(client, 1, ("t", 1))["rows"] == 1
    assert fetched(client) == ["a"]


@pytest.mark.parametrize("restarts", [False, True])
def test_stashed_message_expires_once_it_is_published(broker: Broker, restarts: bool) -> None:
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


def test_epoch_that_is_published_again_publishes_nothing(client: Client) -> None:
    stash(client, "t", "a")
    unstash(client, 1, ("t", 1))
    stash(client, "again", "a")

    assert unstash(client, 0).get("epoch") == 1
    assert unstash(client, 1, ("again", 1))["rows"] == 0

    assert fetched(client) == ["a"]
    assert client.figures("q")["stashed"] == 0


def test_epoch_older_than_the_last_one_is_refused_and_its_stash_stays(client: Client) -> None:
    stash(client, "t", "a")
    unstash(client, 5, ("t", 1))
    stash(client, "another", "b")

    for epoch in (1, 4):
        refused = unstash(client, epoch, ("another", 1))
        assert (refused["err"], "another writer" in refused["detail"]) == ("EPOCH_OLD", True)

    assert unstash(client, 6, ("another", 1))["rows"] == 1
    assert fetched(client) == ["a", "b"]


def test_part_that_is_sent_twice_is_stored_once(client: Client) -> None:
    for _ in range(2):
        stash(client, "t", "a")
        stash(client, "t", "b", part=1)

    assert unstash(client, 1, ("t", 2))["rows"] == 2
    assert fetched(client) == ["a", "b"]


def test_stash_has_a_bounded_number_of_parts(client: Client) -> None:
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
def test_refusal_at_a_bound_of_staging_names_the_bound(
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


def test_writer_unused_longest_is_forgotten_at_the_bound(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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
        in_one_go(ledger.unstash(Unstash("q", UnstashAction.PUBLISHED, [], writer, 1), at_ms))

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


def test_job_that_has_no_epoch_publishes_once(client: Client, broker: Broker) -> None:
    stash(client, "t", "a")
    assert publish_job(client, "job", ("t", 1))["rows"] == 1
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    stash(client, "again", "a")

    assert publish_job(client, "job", ("again", 1))["rows"] == 0

    assert (fetched(client), client.figures("q")["stashed"]) == (["a"], 0)


def test_job_is_forgotten_after_minutes_and_takes_no_place_from_a_writer(
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


def test_part_that_is_sent_again_keeps_its_stash_for_longer(client: Client) -> None:
    stash(client, "t", "a", keep=60)
    client.broker.advance(59)
    stash(client, "t", "a", keep=60)
    client.broker.advance(59)

    assert unstash(client, 1, ("t", 1))["rows"] == 1


def test_peek_in_blocks_leaves_out_stashed_messages(client: Client) -> None:
    stash(client, "t", "a", "b")
    publish(client, "c")

    before = client.call("PEEKB", "q", count=9)
    unstash(client, 1, ("t", 2))

    assert (before["rows"], before["last"]) == (1, 3)
    assert client.call("PEEKB", "q", count=9)["rows"] == 3


def test_stashes_are_published_all_or_none(client: Client) -> None:
    stash(client, "t", "a", keep=10)
    stash(client, "u", "b", keep=60)

    for missing in (("v", 1), ("t", 2)):
        assert unstash(client, 1, ("u", 1), missing)["err"] == "STASH_EXPIRED"

    client.broker.advance(11)
    assert unstash(client, 1, ("t", 1), ("u", 1))["err"] == "STASH_EXPIRED"
    assert fetched(client) == []
    assert unstash(client, 1, ("u", 1))["rows"] == 1


def test_stashes_that_are_dropped_or_lapse_are_removed(client: Client, broker: Broker) -> None:
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


def test_limit_of_the_queue_counts_stashed_messages(client: Client) -> None:
    client.call("CREATE", "q", max_size=2)
    stash(client, "t", "a", "b")

    assert stash(client, "u", "c")["err"] == "QUEUE_FULL"
    assert client.call("PUB", "q", message="d")["err"] == "QUEUE_FULL"
    assert unstash(client, 1, ("t", 2))["rows"] == 2


def test_stashed_message_is_not_requeued_by_an_operator(client: Client, broker: Broker) -> None:
    stash(client, "t", "a")
    ledger = broker.queue("q").ledger
    (number,) = ledger.columns.living_numbers()

    outcome = broker.operate("q", lambda me: Requeue(me, "q", [uid_of(ledger.id, number)]))

    assert outcome.results == [Result.UNKNOWN]
    assert fetched(client) == []


def test_sleeper_is_woken_when_a_stash_is_published(client: Client, worker: Client) -> None:
    stash(client, "t", "a")
    worker.fall_asleep("q")

    unstash(client, 1, ("t", 1))

    assert worker.words() == ["awk"]


# --- attempts that do not count --------------------------------------------------------------------------------------


def attempt(client: Client, name: str, epoch: int, writer: str = "w") -> Json:
    return client.call("STASH", "q", stash=name, messages=[name, name, name], writer=writer, epoch=epoch)


def stashes_left(broker: Broker) -> list[str]:
    return sorted(broker.queue("q").ledger.staging.stashes)


@pytest.mark.parametrize("restarts", [False, True])
def test_publishing_an_epoch_drops_what_else_its_writer_has_stashed_so_far(broker: Broker, restarts: bool) -> None:
    client = broker.client()
    for name, epoch in (("earlier", 1), ("counts", 2), ("failed", 2), ("next", 3)):
        attempt(client, name, epoch)
    attempt(client, "other", 2, writer="another")
    attempt(client, "job", 0)
    stash(client, "without a writer", "x")
    if restarts:
        broker.flush()
        broker.crash_and_restart()
        client = broker.client()

    assert unstash(client, 2, ("counts", 3))["rows"] == 3

    assert fetched(client) == ["counts"] * 3
    assert stashes_left(broker) == ["job", "next", "other", "without a writer"]
    assert client.figures("q")["stashed"] == 10
    broker.check("q")


@pytest.mark.parametrize("epoch", [1, 2])
def test_straggler_of_a_published_epoch_stashes_nothing(client: Client, epoch: int) -> None:
    attempt(client, "counts", 2)
    unstash(client, 2, ("counts", 3))

    assert attempt(client, "straggler", epoch)["err"] == "EPOCH_OLD"

    assert client.figures("q")["stashed"] == 0
    assert attempt(client, "next", 3)["rows"] == 3


def test_straggler_of_a_job_stashes_nothing_whether_it_was_published_or_dropped(client: Client) -> None:
    for job in ("published", "dropped"):
        attempt(client, f"{job} counts", 0, writer=job)
        attempt(client, f"{job} failed", 0, writer=job)

    publish_job(client, "published", ("published counts", 3))
    client.call("UNSTASH", "q", stashes=[], writer="dropped", drop=True)

    assert client.figures("q")["stashed"] == 0
    assert [attempt(client, "late", 0, writer=job)["err"] for job in ("published", "dropped")] == ["EPOCH_OLD"] * 2
    assert fetched(client) == ["published counts"] * 3


def test_dropping_an_epoch_lets_its_writer_begin_it_again(broker: Broker, client: Client) -> None:
    for name, epoch in (("earlier", 1), ("failed", 2), ("next", 3)):
        attempt(client, name, epoch)
    stash(client, "named", "x")

    dropped = client.call("UNSTASH", "q", stashes=[("named", 1)], writer="w", epoch=2, drop=True)

    assert (dropped["rows"], stashes_left(broker)) == (0, ["next"])
    assert attempt(client, "again", 2)["rows"] == 3
    assert unstash(client, 2, ("again", 3))["rows"] == 3


def test_job_that_was_dropped_cannot_be_published(client: Client) -> None:
    attempt(client, "failed", 0, writer="job")
    client.call("UNSTASH", "q", stashes=[], writer="job", drop=True)

    assert publish_job(client, "job", ("failed", 3))["err"] == "STASH_EXPIRED"


def test_repetition_of_an_epoch_drops_what_its_writer_has_stashed(broker: Broker, client: Client) -> None:
    attempt(client, "a", 1)
    stash(client, "t", "b")
    unstash(client, 2, ("t", 1))

    assert (unstash(client, 2)["rows"], stashes_left(broker)) == (0, [])


def test_stash_that_was_dropped_unnamed_is_not_watched_any_more(broker: Broker, client: Client) -> None:
    attempt(client, "failed", 1)
    unstash(client, 1)
    before = broker.queues.applied[0]

    broker.advance(4_000)

    assert broker.queues.applied[0] == before, "nothing lapses"


# --- one write of one run --------------------------------------------------------------------------------------------


def write(client: Client, run: str, id: str, epoch: int = 1) -> str:
    reply = client.call("UNSTASH", "q", stashes=[], writer="w", epoch=epoch, run=run, id=id)
    return str(reply.get("err", reply["cmd"]))


@pytest.mark.parametrize("restarts", [False, True])
def test_second_write_of_an_epoch_in_one_run_is_refused_and_a_repeated_request_is_not(
    broker: Broker, restarts: bool
) -> None:
    client = broker.client()
    publish(client, "a")
    first = write(client, "run", "first")
    if restarts:
        broker.flush()
        broker.crash_and_restart()
        client = broker.client()

    assert [first, *(write(client, "run", id) for id in ("second", "first"))] == ["okrows", "EPOCH_OLD", "okrows"]


def test_second_write_is_refused_in_a_later_run_too(client: Client) -> None:
    write(client, "run", "first")

    replies = [write(client, "restarted", id) for id in ("a", "b", "a")]

    assert replies == ["okrows", "EPOCH_OLD", "okrows"]
    assert write(client, "restarted", "b", epoch=2) == "okrows"


def test_writes_without_a_run_are_repetitions(client: Client) -> None:
    client.call("UNSTASH", "q", stashes=[], writer="w", epoch=1)

    assert client.call("UNSTASH", "q", stashes=[], writer="w", epoch=1)["cmd"] == "okrows"
