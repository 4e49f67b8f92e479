"""Sampler: what looks see, which queues have series, and what a restart or a crash leaves of them."""

import math
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.broker import Asked, Broker, Client
from tests.helpers.clusters.by_hand import HandCluster, HandNode, leads_again
from wakeq.actors.queue import process as process_module
from wakeq.actors.queues import sampler
from wakeq.actors.queues.sampler import ReadSeries, Sampler
from wakeq.protocol.log.format import Identity
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.orders import Stats
from wakeq.protocol.series import DAY_S, LONG_STEP_S, STEP_S, Series
from wakeq.storage.series_file import SeriesFile

Q = "q"
ME = Identity(bytes(16), 1)


@pytest.fixture
def seen(broker: Broker, tmp_path: Path) -> Sampler:
    """A sampler that has begun, at the beginning of a step."""
    return begun(broker, tmp_path)


def begun(broker: Broker, path: Path) -> Sampler:
    to_step(broker)
    broker.assembly.begin_series(SeriesFile(path, ME))
    return broker.assembly.queues.sampler


def to_step(broker: Broker, after_s: float = 0.05) -> None:
    """Let time pass until just after the beginning of the next step, and everything that is due then."""
    broker.advance(STEP_S - broker.now_ms() / 1000 % STEP_S + after_s)


def read(broker: Broker | HandNode, name: str | None, step_s: int = STEP_S) -> dict[str, list[float | None]]:
    """Return the series of a queue or the node, with None for what is unknown."""
    answer = asked(broker, name, step_s)
    return {
        n: [None if math.isnan(value) else round(value, 3) for value in column]
        for n, column in answer["series"].items()
    }


def asked(broker: Broker | HandNode, name: str | None, step_s: int = STEP_S) -> Any:
    question = Asked(broker.runtime)
    broker.assembly.queues.tell(ReadSeries(question, name, step_s, DAY_S))
    broker.settle()
    return question.get()


def test_queue_and_node_show_what_happened_in_each_step(broker: Broker, client: Client, seen: Sampler) -> None:
    for _ in range(4):
        client.publish(Q)
    client.publish(Q, delay=1_000)
    broker.advance(2)
    messages = [client.fetch(Q) for _ in range(3)]
    broker.advance(3)
    client.call("ACK", Q, uid=messages[0]["uid"], lease=messages[0]["lease"])
    client.call("NACK", Q, uid=messages[1]["uid"], lease=messages[1]["lease"], delay=0)
    to_step(broker)

    queue, node = read(broker, Q), read(broker, None)

    assert [queue[name][-1] for name in ("published", "delivered", "acknowledged", "failed")] == [0.5, 0.3, 0.1, 0.1]
    assert [queue[name][-1] for name in ("ready", "delayed", "leased")] == [2, 1, 1]
    assert 1 < (queue["wait_p50_s"][-1] or 0) <= 2.5
    assert 2.5 < (queue["work_p99_s"][-1] or 0) <= 5
    assert {name: column[-1] for name, column in node.items()} == {name: column[-1] for name, column in queue.items()}


def test_queue_of_an_earlier_step_goes_on_although_nothing_happens(
    broker: Broker, client: Client, seen: Sampler
) -> None:
    client.publish(Q, delay=15)

    for _ in range(3):
        to_step(broker)

    assert read(broker, Q)["delayed"] == [1, 0, 0]
    assert read(broker, Q)["ready"] == [0, 1, 1]
    assert read(broker, Q)["published"] == [0.1, 0, 0]


def test_queue_that_did_nothing_since_the_start_has_no_values(broker: Broker, client: Client, seen: Sampler) -> None:
    to_step(broker)

    answer = asked(broker, "")

    assert answer["at_s"] == []


def test_queue_that_does_not_exist_is_refused(broker: Broker, seen: Sampler) -> None:
    assert asked(broker, "nothing").code == "Q_NOT_FOUND"


def test_series_end_with_their_queue(broker: Broker, client: Client, seen: Sampler) -> None:
    client.publish(Q)
    to_step(broker)
    client.call("DROP", Q)
    to_step(broker)
    client.publish(Q)
    to_step(broker)

    assert read(broker, Q)["published"] == [0.1]


def test_series_go_on_after_a_purge(broker: Broker, client: Client, seen: Sampler) -> None:
    client.publish(Q)
    to_step(broker)
    client.call("PURGE", Q)
    client.publish(Q)
    client.publish(Q)
    to_step(broker)

    assert read(broker, Q)["published"] == [0.1, 0.2]


def test_purge_is_no_failure(broker: Broker, client: Client, seen: Sampler) -> None:
    client.publish(Q)
    message = client.fetch(Q)
    client.call("NACK", Q, uid=message["uid"], lease=message["lease"], delay=0)
    to_step(broker)
    client.call("PURGE", Q)
    to_step(broker)

    assert read(broker, Q)["failed"] == read(broker, None)["failed"] == [0.1, 0]


def test_busier_queues_take_the_places_of_much_idler_ones(broker: Broker, client: Client, seen: Sampler) -> None:
    seen.queues_max = 2
    for _ in range(3):
        for name, count in (("busy", 4), ("idle", 1)):
            for _ in range(count):
                client.publish(name)
        to_step(broker)
    at_first = set(seen.queues)

    for _ in range(3):
        for name, count in (("busy", 4), ("idle", 1), ("busier", 6)):
            for _ in range(count):
                client.publish(name)
        to_step(broker)

    assert at_first == {"busy", "idle"}
    assert set(seen.queues) == {"busy", "busier"}


def test_hardly_busier_queue_takes_no_place(broker: Broker, client: Client, seen: Sampler) -> None:
    seen.queues_max = 1
    for _ in range(60):
        client.publish("first")
        client.publish("second")
        to_step(broker)

    assert set(seen.queues) == {"first"}


def test_look_at_more_queues_than_its_bound_reaches_the_busy_ones_and_the_rest_in_turns(
    broker: Broker, client: Client, seen: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "LOOKS_MAX", 2)
    for number in range(5):
        client.publish(f"q{number}")
    to_step(broker)
    first = read(broker, None)["ready"][-1]
    for _ in range(2):
        to_step(broker)
    for _ in range(3):
        client.publish("q3")
    to_step(broker)

    assert first is None, "not all queues have been seen"
    assert read(broker, None)["ready"][2] == 5
    assert read(broker, "q3")["published"][-1] == 0.3
    assert read(broker, None)["published"][-1] == 0.3


def test_series_are_there_after_a_crash_up_to_the_last_minute(
    broker: Broker, client: Client, seen: Sampler, tmp_path: Path
) -> None:
    for _ in range(7):
        client.publish(Q)
        to_step(broker)
    before = asked(broker, Q)

    broker.crash()
    broker.start()
    begun(broker, tmp_path)
    after = asked(broker, Q)

    written = [at_s for at_s in before["at_s"] if at_s <= max(at_s for at_s in before["at_s"] if at_s % 60 == 0)]
    assert after["at_s"] == written
    assert after["series"]["published"] == before["series"]["published"][: len(written)]


def test_time_of_a_crash_is_unknown_and_counts_go_on_behind_it(
    broker: Broker, client: Client, seen: Sampler, tmp_path: Path
) -> None:
    for _ in range(6):
        client.publish(Q)
        to_step(broker)
    broker.crash()
    broker.advance(60)
    broker.start()
    begun(broker, tmp_path)
    broker.client().publish(Q)
    to_step(broker)

    published = read(broker, Q)["published"]

    assert published[-1] == 0.1
    assert published[-3:-1] == [None, None]


def test_series_from_the_future_are_thrown_away(broker: Broker, client: Client, seen: Sampler, tmp_path: Path) -> None:
    seen.node.rings[0].last += 10 * DAY_S
    SeriesFile(tmp_path, ME).write(seen.node, {})
    broker.crash()
    broker.start()

    fresh = begun(broker, tmp_path)

    assert fresh.node.rings[0].rows == 0


def test_series_of_the_step_that_ends_within_a_second_are_kept(
    broker: Broker, client: Client, seen: Sampler, tmp_path: Path
) -> None:
    broker.advance(STEP_S - broker.now_ms() / 1000 % STEP_S - 0.5)
    seen.on_tick()  # the timer comes early
    SeriesFile(tmp_path, ME).write(seen.node, {})
    seen.node = Series(DAY_S)

    seen.begin(SeriesFile(tmp_path, ME), broker.new_disk("series"))

    assert seen.node.rings[0].rows == 1


def test_look_that_is_due_while_the_file_is_being_written_comes_once_it_is(
    broker: Broker, client: Client, seen: Sampler
) -> None:
    broker.snapshot_disk.held = True  # every thread but those of log, state and reader
    while broker.now_ms() // 1000 % 60 > 5:
        to_step(broker)
    rows = seen.node.rings[0].rows
    to_step(broker)
    during = seen.node.rings[0].rows
    broker.snapshot_disk.held = False
    broker.snapshot_disk.complete()
    broker.settle()
    after = seen.node.rings[0].rows, read(broker, None)["ready"][-1]
    to_step(broker)

    assert during == rows
    assert after == (rows + 1, 0)
    assert seen.node.rings[0].rows == rows + 2


def test_queue_that_crashes_when_it_is_looked_at_ends_alone(
    broker: Broker, client: Client, seen: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(Q)
    client.publish("other")
    sound = sampler.counts_of

    def crashing(ledger: Any, *rest: Any) -> Any:
        if ledger.name == Q:
            raise ZeroDivisionError("a bug")
        return sound(ledger, *rest)

    monkeypatch.setattr(sampler, "counts_of", crashing)
    broker.may_fail = True
    to_step(broker)

    assert read(broker, "other")["published"] == [0.1]
    assert not broker.failures


def test_queue_that_is_rebuilt_counts_nothing_again_and_goes_on(
    broker: Broker, client: Client, seen: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        client.publish(Q)
    message = client.fetch(Q)
    client.call("ACK", Q, uid=message["uid"], lease=message["lease"])
    to_step(broker)
    message = client.fetch(Q)
    client.call("ACK", Q, uid=message["uid"], lease=message["lease"])
    crash(broker, monkeypatch)
    for _ in range(10):
        client.publish(Q)
    to_step(broker)

    queue, node = read(broker, Q), read(broker, None)

    for name, counts in (("published", [2, 1]), ("delivered", [0.1, 0.1]), ("acknowledged", [0.1, 0.1])):
        assert queue[name] == node[name] == counts


def test_purged_queue_that_is_rebuilt_counts_nothing_again(
    broker: Broker, client: Client, seen: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        client.publish(Q)
    client.call("PURGE", Q)
    client.publish(Q)
    crash(broker, monkeypatch)
    client.publish(Q)
    to_step(broker)

    assert read(broker, None)["published"] == [0.7]


def test_entry_that_crashed_its_queue_counts_once_when_the_queue_is_rebuilt(
    broker: Broker, client: Client, seen: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(Q)
    to_step(broker)
    sound, crashes = Ledger.publish, [1]

    def crashing(self: Ledger, *rest: Any, **named: Any) -> Any:
        if crashes and crashes.pop():
            raise ZeroDivisionError("a bug")
        return sound(self, *rest, **named)

    monkeypatch.setattr(Ledger, "publish", crashing)
    client.publish(Q)
    to_step(broker)

    assert read(broker, None)["published"] == [0.1, 0.1]


def crash(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process of the queue crash outside of any entry, and wait until it serves again."""

    def crashing(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setitem(process_module._HANDLERS, Stats, crashing)
        broker.queue(Q).tell(Stats(Asked(broker.runtime), Q))
        broker.settle()
    broker.advance(2)
    assert broker.assembly.queues.processes.serves(Q)


# --- in a cluster ------------------------------------------------------------------------------------------------


def test_follower_knows_what_the_log_says_of_the_node_and_nothing_of_queues(
    cluster: HandCluster, leader: HandNode, tmp_path: Path
) -> None:
    follower = looking(cluster, leader, tmp_path)
    client = leader.client()
    for _ in range(10):
        client.publish(Q)
    message = client.fetch(Q)
    client.call("ACK", Q, uid=message["uid"], lease=message["lease"])
    cluster.advance(STEP_S)

    node = read(follower, None)

    assert [node[name][-1] for name in ("published", "delivered", "acknowledged")] == [1, 0.1, 0.1]
    unknown = set(node) - {"published", "delivered", "acknowledged"}
    assert {node[name][-1] for name in unknown} == {None}
    assert asked(follower, Q).code == "NOT_LEADER"


def test_new_leader_goes_on_with_the_node_and_knows_queues_from_then_on(
    cluster: HandCluster, leader: HandNode, tmp_path: Path
) -> None:
    follower = looking(cluster, leader, tmp_path)
    leader.client().publish(Q)
    cluster.advance(STEP_S)
    cluster.until(lambda: leads_again(cluster, follower) and follower.can_serve, "the follower serves")
    for _ in range(2):
        for _ in range(10):
            follower.client().publish(Q)
        cluster.advance(STEP_S)

    node, queue = read(follower, None), read(follower, Q)

    assert node["published"] == [0.1, 1, 1], "the first is what it saw as a follower"
    assert node["ready"] == [None, 11, 21]
    assert queue["published"] == [None, 1]
    assert queue["ready"] == [11, 21]


def test_figures_of_the_catching_up_are_unknown_also_once_the_node_leads(
    cluster: HandCluster, leader: HandNode, tmp_path: Path
) -> None:
    late = cluster.others(leader)[0]
    late.kill()
    for _ in range(100):
        leader.client().publish(Q)
    cluster.advance(STEP_S - leader.now_ms() / 1000 % STEP_S + 0.2)
    late.start()
    late.assembly.begin_series(SeriesFile(tmp_path, ME))
    cluster.isolate(late)
    cluster.advance(STEP_S)
    cluster.heal()
    cluster.advance(STEP_S)
    cluster.until(lambda: leads_again(cluster, late) and late.can_serve, "it serves")
    for _ in range(2):
        late.client().publish(Q)
        cluster.advance(STEP_S)
    cluster.advance(LONG_STEP_S)

    counts, long = read(late, None)["published"], read(late, None, LONG_STEP_S)["published"]

    assert counts[:4] == [None, None, 0.1, 0.1]
    assert max(count or 0 for count in long) < 0.1


def looking(cluster: HandCluster, leader: HandNode, path: Path) -> HandNode:
    """Have all nodes look at their queues, at the beginning of a step; return a follower."""
    cluster.advance(STEP_S - leader.now_ms() / 1000 % STEP_S + 0.2)
    for node in (leader, *cluster.others(leader)):
        (path / str(node.number)).mkdir()
        node.assembly.begin_series(SeriesFile(path / str(node.number), ME))
    return cluster.others(leader)[0]
