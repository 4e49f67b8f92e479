"""Leases, delays and expiries in true time, through pauses, restarts, and machines whose clocks are wrong.

True time is that of the test.  The clocks of a machine, and the cluster clock that is made of them, may say anything.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import HandCluster, HandNode, Operator, successor
from tests.helpers.disks.sync_place import sync_on_loop
from wakeq.actors.log.peer import FromPeer
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.raft.messages import Heartbeat, HeartbeatAnswer

STRICT, DELAYED, EXPIRING = "strict", "delayed", "expiring"
HOUR_MS = 3_600_000
PAUSE_S = 12.0
SPAN_S = 20


def give(client: Client) -> None:
    """Begin a lease, a delay and an expiry."""
    client.call("CREATE", STRICT, lease="strict", timeout=SPAN_S)
    client.publish(STRICT)
    client.fetch(STRICT)
    client.publish(DELAYED, delay=SPAN_S)
    client.publish(EXPIRING, expires=1_800)


def held_back(client: Client) -> list[bool]:
    return [client.finds_nothing(queue) for queue in (STRICT, DELAYED)]


def assert_spans_are_kept(client: Callable[[], Client], advance: Callable[[float], None], passed_s: float) -> None:
    """See that nothing is over before its time, by more than the 1 % of the clock, and all is over soon after it."""
    advance(SPAN_S * 0.99 - 0.05 - passed_s)
    assert held_back(client()) == [True, True]
    advance(SPAN_S * 0.02 + 1.1)
    assert held_back(client()) == [False, False]
    assert client().fetch(EXPIRING)["msg"] == "hi"


@pytest.mark.parametrize("reboots", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_lag_of_a_pause_shortens_nothing_after_a_restart(broker: Broker, *, reboots: bool, is_clean: bool) -> None:
    broker.time.stall(PAUSE_S)
    give(broker.client())
    if is_clean:
        broker.flush()

    broker.crash()
    if reboots:
        broker.clock.reboot()
    broker.advance(0.7)
    broker.start()

    assert_spans_are_kept(broker.client, broker.advance, passed_s=0.7)


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("reboots", [False, True])
def test_corrected_wall_clock_shortens_nothing_after_a_restart(directory: Path, by_ms: int, *, reboots: bool) -> None:
    broker = Broker(directory, step_ms=-by_ms)
    give(broker.client())

    broker.clock.step_ms = 0
    broker.advance(1.5)  # nothing is stamped after the correction
    broker.crash()
    if reboots:
        broker.clock.reboot()
    broker.start()

    assert_spans_are_kept(broker.client, broker.advance, passed_s=1.5)
    broker.close()


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_wall_clock_that_is_set_while_the_broker_is_down_does_not_count_within_one_boot(
    broker: Broker, by_ms: int
) -> None:
    give(broker.client())

    broker.crash()
    broker.advance(3)
    broker.clock.step_ms = by_ms
    broker.start()

    assert_spans_are_kept(broker.client, broker.advance, passed_s=3)


@pytest.mark.parametrize("on_loop", [False, True])
def test_mark_is_on_disk_before_an_entry_that_is_stamped_after_a_pause(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, on_loop: bool
) -> None:
    sync_on_loop(monkeypatch, lambda: on_loop)
    client = broker.client()
    client.call("CREATE", STRICT, lease="strict")
    client.publish(STRICT)
    kept = broker.files.metadata.state.clock

    broker.log_disk.held = True
    broker.time.stall(PAUSE_S)
    client.send({"cmd": "FET", "qname": STRICT})
    broker.settle()
    written = broker.files.log.written_bytes
    broker.log_disk.complete(1)

    assert broker.files.metadata.state.clock != kept
    assert (broker.files.log.written_bytes, client.words()) == (written, [])
    broker.log_disk.complete()
    assert client.words() == ["msg"]


def test_time_that_was_spent_down_counts(broker: Broker) -> None:
    give(broker.client())

    broker.crash()
    broker.advance(SPAN_S)
    broker.start()
    broker.advance(0.1)

    assert held_back(broker.client()) == [False, False]


def test_expiring_message_outlives_restarts_by_no_more_than_the_clock_lags(broker: Broker) -> None:
    broker.client().publish(EXPIRING, expires=100)

    for _ in range(4):
        broker.advance(24)
        broker.crash()
        broker.advance(0.5)
        broker.start()
    before = broker.client().call("FET", EXPIRING, timeout=5)["cmd"]
    broker.advance(6)

    assert before == "msg"
    assert broker.client().finds_nothing(EXPIRING)


# --- several nodes ------------------------------------------------------------------------------------------------


def led(cluster: HandCluster) -> HandNode:
    """Return who leads, once somebody does."""
    cluster.until(lambda: cluster.leader() is not None, "a node leads")
    leader = cluster.leader()
    assert leader is not None
    return leader


def transfer(cluster: HandCluster, to: HandNode) -> None:
    leader = led(cluster)
    operator = leader.runtime.spawn(Operator)
    leader.raft_log.tell(Administer(operator.asker, "transfer", to.number))
    cluster.until(lambda: cluster.leader() is to, "it leads")


class Watch:
    """How much true time has passed since it was made."""

    def __init__(self, cluster: HandCluster) -> None:
        self.cluster, self._began_s = cluster, cluster.time.monotonic_s()

    def assert_spans_are_kept(self) -> None:
        cluster = self.cluster
        passed_s = cluster.time.monotonic_s() - self._began_s
        assert_spans_are_kept(lambda: led(cluster).client(), cluster.advance, passed_s)


@pytest.mark.parametrize("reboots", [False, True])
def test_lag_shortens_nothing_after_an_outage_of_all_nodes(cluster: HandCluster, *, reboots: bool) -> None:
    cluster.time.stall(PAUSE_S)
    give(led(cluster).client())
    watch = Watch(cluster)

    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        if reboots:
            node.machine_clock.reboot()
        cluster.bring_up(node)

    watch.assert_spans_are_kept()


@pytest.mark.parametrize("reboots", [False, True])
def test_lag_shortens_nothing_after_a_quiet_rolling_restart(cluster: HandCluster, *, reboots: bool) -> None:
    cluster.time.stall(PAUSE_S)
    give(led(cluster).client())
    watch = Watch(cluster)

    for node in cluster.nodes:
        node.kill()
        if reboots:
            node.machine_clock.reboot()
        cluster.advance(0.3)
        cluster.bring_up(node)
        led(cluster)

    watch.assert_spans_are_kept()


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_node_that_started_with_a_wrong_clock_leads_by_the_clock_of_the_others(
    cluster: HandCluster, leader: HandNode, by_ms: int
) -> None:
    wrong = restarted_with_a_wrong_clock(cluster, leader, by_ms)
    give(leader.client())
    watch = Watch(cluster)
    cluster.advance(10)  # of quiet

    transfer(cluster, wrong)

    watch.assert_spans_are_kept()


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_wrong_clock_counts_for_nothing_before_its_node_has_heard_a_leader(
    cluster: HandCluster, leader: HandNode, by_ms: int
) -> None:
    give(leader.client())
    watch = Watch(cluster)
    cluster.advance(10)
    wrong, other = cluster.others(leader)
    wrong.kill()
    leader.kill()
    wrong.machine_clock.step_ms = by_ms
    wrong.machine_clock.reboot()

    cluster.bring_up(wrong)
    transfer_by_election(cluster, wrong, other)

    watch.assert_spans_are_kept()


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_wrong_clock_after_an_outage_of_all_nodes_ends_nothing_early(
    cluster: HandCluster, by_ms: int, wrong: int
) -> None:
    """Node 0 campaigns first, and the others vote for it."""
    give(led(cluster).client())
    watch = Watch(cluster)

    for node in cluster.nodes:
        node.kill()
        node.machine_clock.reboot()
    cluster.nodes[wrong].machine_clock.step_ms = by_ms
    for node in cluster.nodes:
        cluster.bring_up(node)

    watch.assert_spans_are_kept()
    assert led(cluster) is cluster.nodes[0]


def test_follower_after_a_pause_has_the_leaders_clock_at_once(cluster: HandCluster, leader: HandNode) -> None:
    follower = cluster.others(leader)[0]

    follower.freeze()
    cluster.advance(15)
    follower.thaw()

    assert abs(follower.now_ms() - leader.now_ms()) <= 100
    assert abs(follower.clock.step_ms()) <= 100
    cluster.isolate(leader)
    assert abs(successor(cluster, leader).now_ms() - leader.now_ms()) <= 100


def test_followers_of_a_quiet_cluster_have_the_leaders_clock(cluster: HandCluster, leader: HandNode) -> None:
    for node in cluster.others(leader):
        node.machine_clock.step_ms = HOUR_MS

    cluster.advance(60)

    assert {node.now_ms() - leader.now_ms() for node in cluster.nodes} <= {0, 1}
    assert [node.clock.step_ms() // 1_000 for node in cluster.others(leader)] == [HOUR_MS // 1_000] * 2


@pytest.mark.parametrize("led", [False, True])
def test_node_that_is_cut_off_does_not_lean_towards_its_own_wall_clock(
    cluster: HandCluster, leader: HandNode, *, led: bool
) -> None:
    """It counts as one that has heard the time, and may lead again as soon as it is back."""
    away = leader if led else cluster.others(leader)[0]
    away.machine_clock.step_ms = HOUR_MS

    cluster.isolate(away)
    cluster.advance(60)

    other = cluster.leader(cluster.others(away))
    assert other is not None
    assert abs(away.now_ms() - other.now_ms()) <= 100


def restarted_with_a_wrong_clock(cluster: HandCluster, leader: HandNode, by_ms: int) -> HandNode:
    wrong = cluster.others(leader)[0]
    wrong.kill()
    wrong.machine_clock.step_ms = by_ms
    wrong.machine_clock.reboot()
    cluster.bring_up(wrong)
    cluster.advance(1)
    return wrong


def transfer_by_election(cluster: HandCluster, to: HandNode, voter: HandNode) -> None:
    """Let a node stand that has heard no leader; the other one votes for it."""
    voter.freeze()
    cluster.advance(1.5)
    cluster.until(lambda: not voter.thaw() and cluster.leader() is not None, "a node leads")
    assert cluster.leader() is to


def heartbeat(sender: HandNode, receiver: HandNode, *, life: int = 0, term: int = 0) -> Heartbeat:
    """A heartbeat whose clock is an hour ahead, of so many lives or terms before those in force."""
    me, core = sender.raft_log.core.me, receiver.raft_log.core
    header = (sender.number, receiver.number, me.disk_id, me.incarnation - life, core.term - term)
    return Heartbeat(*header, 0, 0, receiver.now_ms() + HOUR_MS)


def test_heartbeat_of_an_earlier_term_does_not_set_the_clock(cluster: HandCluster, leader: HandNode) -> None:
    follower = cluster.others(leader)[0]
    before_ms = follower.now_ms()

    follower.raft_log.tell(FromPeer(leader.number, [heartbeat(leader, follower, term=1)]))
    cluster.settle()

    assert follower.now_ms() == before_ms


def test_heartbeat_of_a_former_life_does_not_set_the_clock(cluster: HandCluster, leader: HandNode) -> None:
    follower, other = cluster.others(leader)
    late = heartbeat(other, follower, life=1)
    known = HeartbeatAnswer(late.sender, late.receiver, late.disk_id, late.incarnation + 1, late.term, 0)
    before_ms = follower.now_ms()

    follower.raft_log.tell(FromPeer(other.number, [known, late]))
    cluster.settle()

    assert follower.raft_log.core.leader_id == leader.number
    assert follower.now_ms() == before_ms
