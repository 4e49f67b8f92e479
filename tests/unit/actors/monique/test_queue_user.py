"""QueueUser on a broker by hand: what becomes of messages that are done with, if the log does not take that."""

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.monique.by_hand import push
from tests.helpers.monique.place import TASK, Place
from wakeq.actors.mail import Answered, Leaving, Refusal
from wakeq.actors.monique.queue_user import Acknowledged


def test_what_the_log_did_not_take_off_its_queue_is_there_for_others(
    broker: Broker, place: Place, worker: Client
) -> None:
    place.client().ask(push(TASK, id="t1"))
    where = place.tasks._known["t1"]
    assert where is not None
    queue_id, number = where.place
    queue = broker.runtime.whereis(("queue", "sums"))
    assert queue is not None
    queue.tell(Leaving("sums", queue_id, [number]))
    broker.settle()
    assert worker.call("FET", "sums")["cmd"] == "nomsg"

    refusal = Refusal("NOT_LEADER", "node 2 leads")
    place.tasks.tell(Answered([(Acknowledged("sums", queue_id, [number]), None, refusal)]))
    broker.settle()

    assert worker.call("FET", "sums")["cmd"] == "msg"
