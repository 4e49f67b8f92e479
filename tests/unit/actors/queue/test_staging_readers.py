"""QueueStaging: readers of claims that publish what they have made of them, as a client of the worker protocol sees it.

The reader `r` reads queue q and publishes to queue t; its batch has the number 3.
"""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.brokers.staging import fetched, publish, stage
from wakeq.actors.queue import outgoing
from wakeq.protocol.access import Right
from wakeq.protocol.errors import Forbidden, Refused
from wakeq.protocol.log.entries import Claim, ClaimAction, Entry

CLAIM_S = 60


@pytest.fixture(autouse=True, params=["in one go", "in steps"])
def way(request: pytest.FixtureRequest) -> None:
    """Apply each entry in one go, or in steps of two messages."""
    if request.param == "in steps":
        request.getfixturevalue("small_steps")


def read_batch(client: Client, *bodies: str, run: str = "first", batch: int = 3, source: str = "s") -> None:
    """Have the reader read some messages of queue q, all of them in one epoch of the number of the batch."""
    publish(client, *bodies)
    stage(client, batch, source=source, timeout=CLAIM_S)
    assert read_again(client, run=run, batch=batch, source=source)["cmd"] == "slice"


def read_again(client: Client, run: str, batch: int = 3, source: str = "s") -> Json:
    about = {"reader": "r", "batch": batch, "run": run}
    return client.call("SLICE", "q", source=source, epoch=batch, **about)


def stash(client: Client, name: str, *bodies: str, epoch: int = 3, target: str = "t") -> Json:
    return client.call("STASH", target, stash=name, messages=list(bodies), writer="w", epoch=epoch)


def publish_batch(client: Client, *stashes: tuple[str, int], run: str = "first", **fields: Any) -> Json:
    fields = {"writer": "w", "epoch": 3, "reader": "r", "run": run, "id": run} | fields
    return client.call("UNSTASH", fields.pop("target", "t"), stashes=stashes, **fields)


def published(client: Client, target: str = "t") -> list[str]:
    reply = client.call("FET", target, count=100)
    return [message["msg"] for message in reply.get("messages", [])]


def settle(client: Client, epoch: int = 3) -> Json:
    return client.call("SETTLE", "q", source="s", epoch=epoch)


# --- the way it goes -------------------------------------------------------------------------------------------------


def test_published_batch_stays_readable_and_is_settled_as_ever(client: Client) -> None:
    read_batch(client, "a", "b", "c")
    stash(client, "x", "A", "B", "C")

    assert publish_batch(client, ("x", 3))["rows"] == 3

    assert [m["msg"] for m in read_again(client, run="second")["messages"]] == ["a", "b", "c"]
    assert settle(client)["count"] == 3
    assert (published(client), fetched(client)) == (["A", "B", "C"], [])


@pytest.mark.parametrize("restarts", [False, True])
def test_published_batch_that_lapses_is_acknowledged(broker: Broker, restarts: bool) -> None:
    client = broker.client()
    read_batch(client, "a", "b", "c")
    stash(client, "x", "A")
    publish_batch(client, ("x", 1))
    if restarts:
        broker.crash_and_restart()
        client = broker.client()

    broker.advance(CLAIM_S + 1)

    figures = client.figures("q")
    assert [figures[name] for name in ("ready", "leased", "staged", "acked")] == [0, 0, 0, 3]
    assert read_again(client, run="third")["messages"] == [], "of what is published already there is nothing to do"
    assert client.call("SLICE", "q", source="s", epoch=3)["err"] == "EPOCH_SETTLED"
    assert settle(client)["count"] == 0


def test_published_batch_whose_claim_was_renewed_does_not_end(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    publish_batch(client)
    broker.advance(CLAIM_S - 1)

    client.call("RENEW", "q", source="s", timeout=CLAIM_S)
    broker.advance(CLAIM_S - 1)

    assert client.figures("q")["staged"] == 1
    broker.advance(2)
    assert client.figures("q")["acked"] == 1


def test_batch_that_is_not_published_returns_when_its_claim_lapses(broker: Broker, client: Client) -> None:
    read_batch(client, "a", "b", "c")
    stash(client, "x", "A")

    broker.advance(CLAIM_S + 1)

    assert publish_batch(client, ("x", 1))["err"] == "EPOCH_EXPIRED"
    assert (published(client), fetched(client)) == ([], ["a", "b", "c"])


def test_last_failure_of_a_published_message_makes_no_dead_letter(broker: Broker, client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    read_batch(client, "a")
    publish_batch(client)

    broker.advance(CLAIM_S + 1)

    assert (client.figures("q")["acked"], client.figures("q")["dead"]) == (1, 0)


def test_last_failure_makes_no_dead_letter_if_the_publish_is_on_its_way(broker: Broker, client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    read_batch(client, "a", "b", "c")
    stash(client, "x", "A")
    broker.log_disk.held = True
    client.send({"cmd": "UNSTASH", "qname": "t", "stashes": [["x", 1]], "writer": "w", "epoch": 3, "reader": "r"})
    broker.settle()

    broker.advance(CLAIM_S + 1)
    broker.log_disk.held = False
    broker.log_disk.complete()
    client.take()
    broker.advance(10)

    figures = client.figures("q")
    assert (published(client), [figures[name] for name in ("acked", "dead", "leased")]) == (["A"], [3, 0, 0])
    assert client.call("FET", "q.dead")["cmd"] == "nok"


def test_published_messages_that_were_to_be_dead_letters_wait_for_the_end_of_their_claim(
    broker: Broker, client: Client
) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    read_batch(client, "a", "b", "c")
    other = broker.client()
    broker.advance(CLAIM_S - 1)
    broker.log_disk.held = True
    client.send({"cmd": "UNSTASH", "qname": "t", "stashes": [], "writer": "w", "epoch": 3, "reader": "r"})
    broker.settle()
    other.send({"cmd": "RENEW", "qname": "q", "source": "s", "timeout": CLAIM_S})
    broker.settle()
    broker.queue("q").leases.staged_ends.set(("c", "s"), {3: 0})  # type: ignore[union-attr]  # as if it did not know
    broker.advance(2)
    broker.log_disk.held = False
    broker.log_disk.complete()
    client.take()
    broker.advance(9)
    before = broker.queues.applied[0]

    broker.advance(30)

    assert broker.queues.applied[0] == before, "nobody tries again and again"
    broker.advance(CLAIM_S)
    assert [client.figures("q")[name] for name in ("acked", "dead")] == [3, 0]


def test_end_of_a_published_claim_is_void_behind_a_renewal_in_the_log(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    publish_batch(client)
    broker.advance(CLAIM_S - 1)
    broker.log_disk.held = True
    client.send({"cmd": "RENEW", "qname": "q", "source": "s", "timeout": CLAIM_S})
    broker.settle()
    broker.queue("q").leases.staged_ends.set(("c", "s"), {3: 0})  # type: ignore[union-attr]  # as if it did not know
    broker.advance(2)
    broker.log_disk.held = False
    broker.log_disk.complete()
    client.take()

    assert [m["msg"] for m in read_again(client, run="first")["messages"]] == ["a"]
    broker.advance(CLAIM_S)
    assert client.figures("q")["acked"] == 1
    broker.check("q")


def test_slice_of_a_published_claim_whose_end_is_on_its_way_counts_as_settled(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    publish_batch(client)
    broker.log_disk.held = True
    broker.advance(CLAIM_S + 1)

    replies = client.call("SLICE", "q", source="s", epoch=3), read_again(client, run="first")

    assert (replies[0]["err"], replies[1]["messages"]) == ("EPOCH_SETTLED", [])
    broker.log_disk.held = False
    broker.log_disk.complete()


# --- what is over ----------------------------------------------------------------------------------------------------


def test_run_that_read_nothing_of_a_lapsed_epoch_publishes_and_its_settle_is_not_refused(
    broker: Broker, client: Client
) -> None:
    read_batch(client, "a", "b")
    broker.advance(CLAIM_S + 1)

    refused = read_again(client, run="second")
    stash(client, "x", "of another source")
    lost = settle(client)
    rows = publish_batch(client, ("x", 1), run="second")["rows"]

    assert (refused["err"], lost["err"], rows) == ("EPOCH_EXPIRED", "EPOCH_EXPIRED", 1)
    assert (settle(client)["count"], fetched(client)) == (0, ["a", "b"])


def test_epoch_that_its_reader_went_on_without_counts_as_settled_behind_the_next_batch(
    broker: Broker, client: Client
) -> None:
    read_batch(client, "a")
    broker.advance(CLAIM_S + 1)
    read_again(client, run="second")
    publish_batch(client, run="second")

    read_batch(client, "b", batch=4)

    assert settle(client)["count"] == 0
    assert (stage(client, 3)["err"], settle(client, 4)["count"]) == ("EPOCH_SETTLED", 2)


def test_epoch_that_lapsed_before_anybody_read_it_is_read_as_nothing(broker: Broker, client: Client) -> None:
    publish(client, "a")
    stage(client, 3, timeout=CLAIM_S)
    broker.advance(CLAIM_S + 1)

    refused = read_again(client, run="first")["err"]

    assert (refused, publish_batch(client)["rows"]) == ("EPOCH_EXPIRED", 0)
    assert (settle(client)["count"], fetched(client)) == (0, ["a"])


def test_program_that_was_away_does_not_publish_a_batch_after_its_successor_went_on_without_it(
    broker: Broker, client: Client
) -> None:
    read_batch(client, "a", run="away")
    stash(client, "old", "A")
    broker.advance(CLAIM_S + 1)
    read_again(client, run="second")

    refused = publish_batch(client, ("old", 1), run="away")

    assert refused["err"] == "EPOCH_EXPIRED"
    assert publish_batch(client, run="second")["rows"] == 0
    assert publish_batch(client, ("old", 1), run="away")["rows"] == 0, "a repetition"
    assert (published(client), fetched(client)) == ([], ["a"])


def test_batch_that_somebody_else_settled_is_not_published_by_a_run_that_read_it(client: Client) -> None:
    read_batch(client, "a")
    settle(client)

    refused = publish_batch(client)
    others = publish_batch(client, run="second", epoch=3)

    assert (refused["err"], others["rows"]) == ("EPOCH_SETTLED", 0)


def test_released_batch_returns_without_a_failure_and_is_not_published(client: Client) -> None:
    client.call("CREATE", "q", max_deliveries=1)
    read_batch(client, "a", "b", "c")

    assert client.call("RELEASE", "q", source="s")["count"] == 3

    assert publish_batch(client)["err"] == "EPOCH_EXPIRED"
    assert (fetched(client), client.figures("q")["dead"]) == (["a", "b", "c"], 0)
    assert client.call("RELEASE", "q", source="s")["count"] == 0


def test_release_acknowledges_a_published_batch_and_returns_the_next_one(client: Client) -> None:
    read_batch(client, "a", "b")
    publish_batch(client)
    read_batch(client, "c", "d", batch=4)

    assert client.call("RELEASE", "q", source="s")["count"] == 2

    assert (fetched(client), client.figures("q")["acked"]) == (["c", "d"], 2)
    assert [settle(client, epoch).get("err") for epoch in (3, 4)] == [None, "EPOCH_EXPIRED"]


def test_release_and_publish_on_their_way_together_leave_no_message_twice(broker: Broker, client: Client) -> None:
    read_batch(client, "a", "b")
    stash(client, "x", "A")
    broker.log_disk.held = True
    other = broker.client()

    client.send({"cmd": "UNSTASH", "qname": "t", "stashes": [["x", 1]], "writer": "w", "epoch": 3, "reader": "r",
                 "run": "first", "id": "i"})  # fmt: skip
    broker.settle()
    other.send({"cmd": "RELEASE", "qname": "q", "source": "s"})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    (unstashed,), (released,) = client.take(), other.take()

    results = unstashed.get("err", "published"), released.get("err", "released")
    assert results in [("published", "BUSY"), ("EPOCH_EXPIRED", "released")]
    broker.advance(CLAIM_S + 1)
    assert len(published(client)) + bool(fetched(client)) == 1


# --- repetitions, and other writers ----------------------------------------------------------------------------------


def test_batch_that_is_published_again_publishes_nothing_and_marks_what_is_open(broker: Broker, client: Client) -> None:
    stash(client, "x", "A")
    assert publish_batch(client, ("x", 1))["rows"] == 1
    read_batch(client, "a")

    assert publish_batch(client)["rows"] == 0

    broker.advance(CLAIM_S + 1)
    assert (published(client), client.figures("q")["acked"]) == (["A"], 1)


def test_writer_that_is_older_publishes_and_marks_nothing(broker: Broker, client: Client) -> None:
    client.call("UNSTASH", "t", stashes=[], writer="w", epoch=4)
    read_batch(client, "a")

    assert publish_batch(client)["err"] == "EPOCH_OLD"

    broker.advance(CLAIM_S + 1)
    assert fetched(client) == ["a"]


def test_stash_that_is_gone_marks_nothing(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    client.publish("t")

    assert publish_batch(client, ("gone", 1))["err"] == "STASH_EXPIRED"

    broker.advance(CLAIM_S + 1)
    assert fetched(client) == ["a"]


def test_lapsed_epoch_is_told_before_a_stash_that_is_gone(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    client.publish("t")
    broker.advance(CLAIM_S + 1)

    assert publish_batch(client, ("gone", 1))["err"] == "EPOCH_EXPIRED"


# --- several queues, and queues that are gone ------------------------------------------------------------------------


def test_queue_that_is_read_and_written_is_both(broker: Broker, client: Client) -> None:
    read_batch(client, "a", "b")
    stash(client, "x", "A", target="q")

    assert publish_batch(client, ("x", 1), target="q")["rows"] == 1

    broker.advance(CLAIM_S + 1)
    assert (fetched(client), client.figures("q")["acked"]) == (["A"], 2)


@pytest.mark.parametrize("lapses", [False, True])
def test_batch_of_two_queues_is_published_only_if_both_are_open(broker: Broker, client: Client, lapses: bool) -> None:
    for name, span_s in (("q", 2 * CLAIM_S), ("second", CLAIM_S)):
        client.publish(name, name)
        client.call("STAGE", name, source="s", epoch=3, timeout=span_s)
        client.call("SLICE", name, source="s", epoch=3, reader="r", batch=3, run="first")
    broker.advance(CLAIM_S + 1 if lapses else 1)

    reply = publish_batch(client)

    broker.advance(2 * CLAIM_S)
    expected = ("EPOCH_EXPIRED", [1, 1]) if lapses else (None, [0, 0])
    assert (reply.get("err"), [client.figures(name)["ready"] for name in ("q", "second")]) == expected


def test_two_sources_of_one_queue_are_marked_together(broker: Broker, client: Client) -> None:
    read_batch(client, "a", source="one")
    read_batch(client, "b", source="two")
    publish_batch(client)

    broker.advance(CLAIM_S + 1)

    assert client.figures("q")["acked"] == 2


def test_publish_of_nothing_creates_its_queue_and_remembers_the_epoch(client: Client) -> None:
    read_batch(client, "a")

    assert publish_batch(client, target="new")["rows"] == 0

    assert client.call("UNSTASH", "new", stashes=[], writer="w")["epoch"] == 3


def test_stashes_for_a_queue_that_is_gone_are_refused_and_mark_nothing(broker: Broker, client: Client) -> None:
    read_batch(client, "a")

    assert publish_batch(client, ("x", 1), target="gone")["err"] == "Q_NOT_FOUND"

    broker.advance(CLAIM_S + 1)
    assert fetched(client) == ["a"]


@pytest.mark.parametrize("end", ["DROP", "PURGE"])
def test_batch_of_a_queue_that_is_emptied_before_is_published(client: Client, end: str) -> None:
    read_batch(client, "a")
    stash(client, "x", "A")
    client.call(end, "q")

    assert publish_batch(client, ("x", 1))["rows"] == 1


@pytest.mark.parametrize("end", ["DROP", "PURGE"])
def test_batch_of_a_queue_that_is_emptied_on_the_way_counts_as_lapsed(broker: Broker, client: Client, end: str) -> None:
    read_batch(client, "a")
    stash(client, "x", "A")
    other = broker.client()
    broker.log_disk.held = True

    other.send({"cmd": end, "qname": "q"})
    broker.settle()
    client.send({"cmd": "UNSTASH", "qname": "t", "stashes": [["x", 1]], "writer": "w", "epoch": 3, "reader": "r"})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply.get("err") for reply in client.take()] == ["EPOCH_EXPIRED"]
    assert published(client) == []


# --- who reads -------------------------------------------------------------------------------------------------------


def test_slice_leaves_only_when_its_reader_is_in_the_log(broker: Broker, client: Client) -> None:
    publish(client, "a")
    stage(client, 3)
    broker.log_disk.held = True

    client.send({"cmd": "SLICE", "qname": "q", "source": "s", "epoch": 3, "reader": "r", "batch": 3, "run": "x"})
    before = client.take()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert before == []
    assert [reply["cmd"] for reply in client.take()] == ["slice"]


def test_reader_that_is_known_is_not_written_again(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    before = broker.queues.applied[0]

    read_again(client, run="first")

    assert broker.queues.applied[0] == before
    read_again(client, run="second")
    assert broker.queues.applied[0] == before + 1


def test_task_of_an_earlier_batch_does_not_take_the_mark_of_a_later_one(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    read_batch(client, "b", batch=4)

    assert read_again(client, run="straggler", batch=3)["cmd"] == "slice"

    publish_batch(client, epoch=4)
    broker.advance(CLAIM_S + 1)
    assert fetched(client) == ["a"]


def test_only_the_last_readers_of_a_source_and_their_last_runs_are_remembered(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    for number in range(8):
        read_again(client, run=f"run {number}")
    runs = len(broker.queue("q").ledger.staging.sources["s"].readers["r"].runs)
    for number in range(9):
        look(client, f"reader {number}")

    readers = broker.queue("q").ledger.staging.sources["s"].readers
    assert (runs, list(readers)) == (8, [f"reader {number}" for number in range(1, 9)])


def test_client_without_the_right_to_fetch_publishes_nothing_for_a_reader(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_batch(client, "a")
    stash(client, "x", "A")

    def denial_of_fetch(queue: str) -> Refused | None:
        return Forbidden(f"no right to {Right.FETCH.value} from {queue}")

    monkeypatch.setattr(client.process, "denial_of_fetch", denial_of_fetch)

    refused = publish_batch(client, ("x", 1))

    assert (refused["err"], refused["detail"]) == ("FORBIDDEN", "no right to fetch from q")
    assert published(client) == []


# --- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushes", ["before", "between", "never"])
@pytest.mark.parametrize("lost", ["q", "t"])
def test_published_batch_is_whole_after_its_queues_crash_and_the_node_restarts(
    broker: Broker, client: Client, flushes: str, lost: str
) -> None:
    read_batch(client, "a", "b", "c")
    stash(client, "x", "A", "B", "C")
    stash(client, "of a failed task", "A")
    if flushes == "before":
        broker.flush()
    publish_batch(client, ("x", 3))
    if flushes == "between":
        broker.flush()

    broker.queue(lost).tell("nothing that a queue knows")
    broker.settle()
    again = publish_batch(client, ("x", 3))
    broker.crash_and_restart()
    client = broker.client()
    broker.advance(CLAIM_S + 1)

    assert again["rows"] == 0
    assert (published(client), client.figures("t")["stashed"], client.figures("q")["acked"]) == (["A", "B", "C"], 0, 3)


def test_slice_that_waits_for_its_mark_is_answered_when_its_queue_crashes(broker: Broker, client: Client) -> None:
    publish(client, "a")
    stage(client, 3)
    broker.log_disk.held = True
    client.send({"cmd": "SLICE", "qname": "q", "source": "s", "epoch": 3, "reader": "r", "batch": 3, "run": "x"})
    broker.settle()

    broker.queue("q").tell("nothing that a queue knows")
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply["cmd"] for reply in client.take()] == ["slice"]


def test_slice_whose_mark_is_on_its_way_when_its_queue_crashes_gets_its_answer_from_there(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, "a")
    stage(client, 3)
    propose, left = outgoing.propose, [1]

    def propose_and_crash(queue: Any, entry: Entry, *about: Any, **how: Any) -> None:
        propose(queue, entry, *about, **how)
        if isinstance(entry, Claim) and entry.action is ClaimAction.READ and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("behind the proposal")

    monkeypatch.setattr(outgoing, "propose", propose_and_crash)

    assert read_again(client, run="x")["cmd"] == "slice"
    assert left == [0]


# --- several readers, several writers --------------------------------------------------------------------------------


def look(client: Client, reader: str, batch: int = 3, run: str = "x", epoch: int = 3) -> Json:
    return client.call("SLICE", "q", source="s", epoch=epoch, reader=reader, batch=batch, run=run)


def test_epoch_of_a_writer_that_another_reader_has_published_is_no_repetition(broker: Broker, client: Client) -> None:
    publish_batch(client, reader="before")
    read_batch(client, "a")

    assert publish_batch(client)["err"] == "EPOCH_OLD"

    broker.advance(CLAIM_S + 1)
    assert fetched(client) == ["a"]


def test_published_epoch_is_not_staged_or_read_by_another_reader(client: Client) -> None:
    read_batch(client, "a")
    publish_batch(client)

    replies = stage(client, 3), client.call("SETTLE", "q", source="s", epoch=0), look(client, "another")

    assert [replies[0]["err"], replies[1]["next"], replies[2]["err"]] == ["EPOCH_SETTLED", 4, "EPOCH_SETTLED"]
    assert [m["msg"] for m in read_again(client, run="second")["messages"]] == ["a"], "its own reader goes on"


@pytest.mark.parametrize("first", ["r", "another"])
def test_second_reader_of_an_epoch_cannot_publish_it_too(broker: Broker, client: Client, first: str) -> None:
    read_batch(client, "a")
    assert look(client, "another", batch=8)["cmd"] == "slice"
    stash(client, "mine", "A")
    client.call("STASH", "t", stash="theirs", messages=["B"])

    def another() -> Json:
        return publish_batch(client, ("theirs", 1), run="x", reader="another", writer="v", epoch=8)

    replies = [publish_batch(client, ("mine", 1)), another()] if first == "r" else [another(), publish_batch(client)]

    assert [reply.get("err") for reply in replies] == [None, "EPOCH_SETTLED"]
    broker.advance(CLAIM_S + 1)
    assert (published(client), client.figures("q")["acked"]) == (["A" if first == "r" else "B"], 1)


def test_batch_that_is_published_is_not_published_by_another_writer_too(client: Client) -> None:
    read_batch(client, "a")
    publish_batch(client)

    again = publish_batch(client, writer="v"), publish_batch(client, target="elsewhere")
    settle(client)
    shown = read_again(client, run="second")["messages"]

    assert [reply["err"] for reply in again] == ["EPOCH_SETTLED"] * 2
    assert (shown, publish_batch(client, writer="v", run="second")["rows"]) == ([], 0), "a run that was shown nothing"


def test_publish_for_a_reader_waits_while_a_queue_is_behind(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    processes, readings = broker.queues.processes, broker.queue("q").services.readings
    processes.away.add("q")
    readings.note("q", {})
    client.send({"cmd": "UNSTASH", "qname": "t", "stashes": [], "writer": "w", "epoch": 3, "reader": "r"})
    broker.advance(1)
    before = client.take()
    readings.note("q", {"r": 3})
    processes.away.discard("q")

    broker.advance(1)

    assert (before, client.words()) == ([], ["okrows"])
    broker.advance(CLAIM_S)
    assert client.figures("q")["acked"] == 1


# --- ends by uid, and by the clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"dead": True}, {"delay": 0}, {"failed": False}])
@pytest.mark.parametrize("restarts", [False, True])
def test_message_that_is_published_is_not_returned_by_its_uid(
    broker: Broker, how: dict[str, object], restarts: bool
) -> None:
    client = broker.client()
    (uid,) = publish(client, "a")
    stage(client, 3, timeout=CLAIM_S)
    read_again(client, run="first")
    publish_batch(client)
    if restarts:
        broker.crash_and_restart()
        client = broker.client()

    client.call("NACK", "q", uid=uid, **how)

    assert (fetched(client), client.figures("q")["dead"]) == ([], 0)
    assert settle(client)["count"] == 1
    broker.check("q")


def test_epoch_that_was_told_to_be_over_is_not_renewed(broker: Broker, client: Client) -> None:
    read_batch(client, "a")
    broker.advance(CLAIM_S - 1)
    leases = broker.queue("q").leases
    assert leases is not None
    assert leases.staged_ends is not None
    leases.staged_ends.set(("c", "s"), {3: broker.now_ms() + 9_000})  # the alarm is late
    broker.advance(2)

    told = read_again(client, run="second"), client.call("RENEW", "q", source="s")

    assert [reply["err"] for reply in told] == ["EPOCH_EXPIRED"] * 2
    broker.advance(9)
    assert fetched(client) == ["a"]


def test_writer_that_is_about_to_be_forgotten_does_not_count_as_a_repetition(broker: Broker, client: Client) -> None:
    publish_batch(client)
    broker.advance(31 * 86_400)
    read_batch(client, "a")
    broker.advance(CLAIM_S + 1)

    assert publish_batch(client)["err"] == "EPOCH_EXPIRED"
    assert fetched(client) == ["a"]
