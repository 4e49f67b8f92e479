"""QueueProcess at a node that leads no longer, or may not know whether it does: what comes to it late."""

from collections.abc import Callable

import pytest

from tests.helpers.hand_cluster import ELECTION_S, HandCluster, HandNode, Operator
from wakeq.actors.messages import Answered, Asker, Nack, Refusal, Touch
from wakeq.protocol.commands import ANY_TOKEN

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
