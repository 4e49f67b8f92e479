"""Barrier: what each queue of an entry has to judge and to do, and the one answer that comes of it."""

from typing import Any

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.queues.barrier import ANSWERED_PART, Gathering, parts_of, to_judge
from wakeq.protocol.log.entries import Ack, Draft, Publish
from wakeq.protocol.queue.outcomes import Outcome


class Ticket:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def tell(self, answer: Any) -> None:
        self.answers.append(answer)


def publish(name: str, *bodies: bytes) -> Publish:
    return Publish(name, [Draft(body) for body in bodies], atomic=True)


def entry(*publishes: Publish) -> Ack:
    return Ack("q", 1, [7], [(0, 0)], list(publishes))


def outcome(name: str, *results: int) -> Outcome:
    return Outcome(name, 1, list(results))


def test_answer_is_given_once_with_the_outcome_of_each_part_in_the_order_of_the_parts() -> None:
    ticket, ends = Ticket(), []
    gathering = Gathering(ticket, 3, lambda: ends.append(list(ticket.answers)))

    gathering.part(1).tell(outcome("a", 4))
    gathering.part(0).tell(outcome("q", 0))
    before = list(ticket.answers)
    gathering.part(2).tell(outcome("b", 5))

    assert before == []
    assert ticket.answers == [Outcome("q", 1, [0], [outcome("a", 4), outcome("b", 5)])]
    assert len(ends) == 1


def test_part_that_is_told_again_by_a_rebuilt_queue_counts_once() -> None:
    ticket, ends = Ticket(), []
    gathering = Gathering(ticket, 2, lambda: ends.append(True))

    gathering.part(0).tell(outcome("q", 0))
    gathering.part(0).tell(outcome("q", 0))
    early = list(ticket.answers)
    gathering.part(1).tell(outcome("a", 1))
    gathering.part(1).tell(outcome("a", 1))

    assert early == []
    assert (len(ticket.answers), len(ends)) == (1, 1)


def test_barrier_ends_without_an_asker() -> None:
    ends = []
    gathering = Gathering(None, 1, lambda: ends.append(True))

    gathering.part(0).tell(outcome("q", 0))

    assert ends == [True]


def test_part_that_was_answered_before_its_queue_was_rebuilt_is_not_answered_again() -> None:
    ANSWERED_PART.tell(outcome("q", 0))


def test_follow_ups_of_one_queue_are_judged_together_and_done_one_by_one() -> None:
    both = entry(publish("a", b"1"), publish("b", b"2"), publish("a", b"3"))

    judged, done = to_judge(both), parts_of(both)

    assert judged == [entry(), publish("a", b"1", b"3"), publish("b", b"2")]
    assert done == [entry(), publish("a", b"1"), publish("b", b"2"), publish("a", b"3")]


def test_refusal_of_the_first_part_counts_among_several(broker: Broker, client: Client) -> None:
    client.call("CREATE", "a", max_size=1)
    client.call("CREATE", "b", priority_min=5, priority_max=6)
    unknown = client.publish("a")
    client.publish("q")
    known = client.fetch("q")["uid"]
    follow_ups = [{"qname": name, "message": "m"} for name in "ab"]

    refusals = [
        client.call("ACK", "q", uid=known, publish=order)["err"] for order in (follow_ups, list(reversed(follow_ups)))
    ]
    gone = client.call("ACK", "q", uid=unknown, publish=follow_ups)

    assert refusals == ["QUEUE_FULL", "KEY_RANGE"]
    assert gone["err"] == "UNKNOWN_UID"
    assert client.figures("q")["leased"] == 1
