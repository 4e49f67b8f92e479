"""QueueProcesses: each queue has one process, whatever becomes of it while others crash."""

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.mail import Answered, Propose, ReplyByMail
from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import DeleteQueue, Draft, Entry, Publish
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Outcome

Q = "q"


class Operator(Process):
    """Proposes an entry as the HTTP door does, and keeps the answer."""

    def __init__(self, log: Process, entry: Entry) -> None:
        super().__init__()
        self.results: list[int] = []
        log.tell(Propose([Proposal(entry, ReplyByMail(self, self._take))]))

    def on_receive(self, message: Answered[Outcome]) -> None:
        message.deliver()

    def _take(self, outcome: Outcome) -> None:
        self.results += outcome.results


def test_queue_created_again_before_its_crashing_entry_is_skipped_is_made_once(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    poison[0] = -1
    broker.state_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    broker.settle()
    broker.log_disk.held = True
    deletes = broker.runtime.spawn(Operator, broker.raft_log, DeleteQueue(Q))
    publishes = broker.runtime.spawn(Operator, broker.raft_log, Publish(Q, [Draft(b"m")]))
    broker.settle()
    broker.state_disk.held = False
    broker.state_disk.complete()
    broker.settle()
    assert broker.queues.is_halted, "it has crashed three times before the others are committed"
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply.get("err") for reply in client.take()] == ["SET_ASIDE"]
    assert (deletes.results, publishes.results) == ([0], [1])
    assert client.fetch(Q)["msg"] == "m"
    assert broker.runtime.failures == 3, "nothing was made that had to go again"


def test_follow_up_that_makes_a_queue_anew_while_it_is_rebuilt_makes_no_second_process(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    crashes, deletes = broker.client(), broker.client()
    client.publish(Q)
    client.publish("done")
    held = client.fetch("done")
    broker.advance(0.1)
    poison[0] = 1

    broker.state_disk.held = True
    crashes.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    deletes.send({"cmd": "DROP", "qname": Q})
    follow_up = [{"qname": Q, "message": "next"}]
    client.send({"cmd": "ACK", "qname": "done", "uid": held["uid"], "publish": follow_up})
    broker.settle()
    broker.state_disk.held = False
    broker.state_disk.complete()
    (done,) = client.take()

    assert done["cmd"] == "okack"
    assert client.fetch(Q)["uid"] == done["published"][0]
    assert client.finds_nothing(Q)
