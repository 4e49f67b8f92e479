"""QueueProcess at a node that leads no longer, or may not know whether it does: what comes to it late."""

from collections.abc import Callable

import pytest

from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator
from wakeq.actors.mail import Answered, Asker, Nack, Refusal, Sleep, Touch
from wakeq.protocol.log.entries import ANY_TOKEN

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
def test_what_was_on_its_way_when_the_others_were_lost_is_refused(
    cluster: HandCluster, leader: HandNode, ask: Callable[..., Touch | Nack], elections: float, code: str
) -> None:
    worker = leader.client()
    uid = worker.publish(Q)
    worker.fetch(Q)
    operator = leader.runtime.spawn(Operator)
    cluster.isolate(leader)

    cluster.advance(elections * ELECTION_S)
    leader.queues._processes[Q].tell(ask(Asker(operator, None, [0]), [uid], [ANY_TOKEN]))
    cluster.settle()

    (answered,) = operator.heard
    assert isinstance(answered, Answered)
    assert [answer.code for _, _, answer in answered.answers if isinstance(answer, Refusal)] == [code]


def test_who_hangs_up_is_nothing_to_a_queue(cluster: HandCluster, leader: HandNode) -> None:
    worker = leader.client()
    worker.call("SUB", Q)
    worker.publish(Q)
    worker.fetch(Q)
    process = leader.queues._processes[Q]
    cluster.isolate(leader)
    cluster.advance(2 * ELECTION_S)

    worker.close()

    assert process.alive
    assert leader.queues._processes[Q] is process


def test_who_goes_to_sleep_at_a_node_that_leads_no_longer_is_answered(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)
    operator = leader.runtime.spawn(Operator)
    process = leader.queues._processes[Q]
    cluster.isolate(leader)
    cluster.advance(2 * ELECTION_S)

    process.tell(Sleep(Asker(operator, None, 0), Q, False))
    cluster.settle()

    assert process.alive
    assert [type(message) for message in operator.heard] == [Answered]


def test_another_order_of_the_line_is_taken_over_by_those_who_follow(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    processes = [node.queues._processes[Q] for node in cluster.nodes if Q in node.queues._processes]

    client.call("UPDATE", Q, structure="QA", priority_min=0, priority_max=5)
    cluster.advance(0.5)

    assert all(process.alive for process in processes)
    assert [node.queues._processes[Q].ledger.policies.structure for node in cluster.nodes] == ["QA"] * 3
