"""QueueProcess at a node that leads no longer, or may not know whether it does: what comes to it late."""

from collections.abc import Callable

import pytest

from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator
from tests.helpers.doors.lanes import HandSession
from wakeq.protocol.log.entries import ANY_TOKEN, Draft
from wakeq.protocol.queue.orders import Nack, Touch
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.slots import SeveralResults, Slot
from wakeq.protocol.wire.worker import codec as wire

Q = "q"


@pytest.mark.parametrize(
    "ask",
    [
        lambda asker, uids, tokens: Touch(asker, Q, uids, tokens, 0),
        lambda asker, uids, tokens: Nack(asker, Q, uids, tokens, None),
    ],
    ids=["TOUCH", "NACK"],
)
@pytest.mark.parametrize(("elections", "code"), [(0.6, "NO_QUORUM"), (2, "NOT_LEADER")])
def test_command_under_way_when_the_other_nodes_are_lost_is_refused(
    cluster: HandCluster, leader: HandNode, ask: Callable[..., Touch | Nack], elections: float, code: str
) -> None:
    worker = leader.client()
    uid = worker.publish(Q)
    worker.fetch(Q)
    operator = leader.runtime.spawn(Operator)
    cluster.isolate(leader)

    cluster.advance(elections * ELECTION_S)
    leader.queues.processes.by_name[Q].tell(ask(SeveralResults(operator.asker, 1), [uid], [ANY_TOKEN]))
    cluster.settle()

    (answer,) = operator.heard
    assert isinstance(answer, Refusal)
    assert answer.code == code


def test_queue_without_the_lead_ignores_a_closed_connection(cluster: HandCluster, leader: HandNode) -> None:
    worker = leader.client()
    worker.call("SUB", Q)
    worker.publish(Q)
    worker.fetch(Q)
    process = leader.queues.processes.by_name[Q]
    cluster.isolate(leader)
    cluster.advance(2 * ELECTION_S)

    worker.close()

    assert process.alive
    assert leader.queues.processes.by_name[Q] is process


@pytest.mark.parametrize(
    "command",
    [wire.Fet(qname=Q), wire.Fet(qname=Q, wait=9), wire.Islp(qname=Q), wire.FetBlock(qname=Q)],
    ids=["FET", "FET that waits", "ISLP", "FETB"],
)
def test_read_filed_at_a_node_that_leads_no_longer_is_refused(
    cluster: HandCluster, leader: HandNode, command: wire.Command
) -> None:
    leader.client().publish(Q)
    process = leader.queues.processes.by_name[Q]
    cluster.isolate(leader)
    cluster.advance(2 * ELECTION_S)
    slot = Slot(HandSession(), command)

    leader.assembly.lobby.filed(Q).reads.append(slot)
    cluster.settle()

    assert process.alive
    assert slot.outcome.code == "NOT_LEADER"


def test_write_filed_at_a_node_that_leads_no_longer_is_refused(cluster: HandCluster, leader: HandNode) -> None:
    uid = leader.client().publish(Q)
    cluster.isolate(leader)
    cluster.advance(2 * ELECTION_S)
    session = HandSession()
    published, acknowledged = Slot(session, wire.Pub(qname=Q)), Slot(session, wire.Ack(qname=Q, uid=uid))

    filed = leader.assembly.lobby.filed(Q)
    filed.publish(published, Draft(b"m"), "", 0, is_alike=True)
    filed.acknowledge(acknowledged, uid, ANY_TOKEN)
    cluster.settle()

    assert [slot.outcome.code for slot in (published, acknowledged)] == ["NOT_LEADER"] * 2
    assert leader.queues.processes.by_name[Q].outgoing is None


def test_update_of_the_structure_is_applied_by_followers(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    processes = [node.queues.processes.by_name[Q] for node in cluster.nodes if Q in node.queues.processes.by_name]

    client.call("UPDATE", Q, structure="QA", priority_min=0, priority_max=5)
    cluster.advance(0.5)

    assert all(process.alive for process in processes)
    assert [node.queues.processes.by_name[Q].ledger.policies.structure for node in cluster.nodes] == ["QA"] * 3
