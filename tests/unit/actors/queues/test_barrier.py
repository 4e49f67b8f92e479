"""Barrier: what each queue of an entry has to judge, and the one answer that comes of it."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.queues.barrier import ANSWERED_PART, PartTicket, judged_together, verdict, whole_outcome
from wakeq.protocol.log.entries import Draft, Publish, Result, Unstash, UnstashAction
from wakeq.protocol.queue.outcomes import Outcome


def publish(name: str, *bodies: bytes) -> Publish:
    return Publish(name, [Draft(body) for body in bodies], atomic=True)


def outcome(name: str, *results: int) -> Outcome:
    return Outcome(name, 1, list(results))


def test_outcome_of_all_parts_is_in_the_order_of_the_parts() -> None:
    tickets = [PartTicket() for _ in range(3)]

    tickets[1].tell(outcome("a", 4))
    tickets[0].tell(outcome("q", 0))
    before = whole_outcome(tickets)
    tickets[2].tell(outcome("b", 5))

    assert before is None
    assert whole_outcome(tickets) == Outcome("q", 1, [0], [outcome("a", 4), outcome("b", 5)])


def test_part_that_is_told_again_by_a_rebuilt_queue_counts_once() -> None:
    ticket, late = PartTicket(), []
    ticket.late = lambda: late.append(ticket.outcome)

    ticket.tell(outcome("q", 0))
    ticket.tell(outcome("q", 1))

    assert late == [outcome("q", 0)]
    assert ticket.outcome == outcome("q", 0)


def test_part_that_was_answered_before_its_queue_was_rebuilt_is_not_answered_again() -> None:
    before = ANSWERED_PART.outcome

    ANSWERED_PART.tell(outcome("q", 0))

    assert ANSWERED_PART.outcome is before


def test_follow_ups_of_one_queue_are_judged_together() -> None:
    publishes = [publish("a", b"1"), publish("b", b"2"), publish("a", b"3")]

    judged = judged_together(publishes)

    assert judged == [publish("a", b"1", b"3"), publish("b", b"2")]


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (0, [0, 0], 0),
        (Result.EPOCH_OLD, [Result.EPOCH_EXPIRED], Result.EPOCH_OLD),
        (Result.REPEATED, [Result.EPOCH_EXPIRED], 0),
        (Result.STASH_EXPIRED, [0, Result.EPOCH_EXPIRED], Result.EPOCH_EXPIRED),
        (Result.STASH_EXPIRED, [0], Result.STASH_EXPIRED),
        (Result.UNKNOWN, [0], Result.UNKNOWN),
        (0, [Result.EPOCH_SETTLED, Result.EPOCH_EXPIRED], Result.EPOCH_SETTLED),
    ],
)
def test_writer_speaks_first_then_the_queues_that_were_read_then_the_stashes(
    own: int, others: list[int], expected: int
) -> None:
    entry = Unstash("t", UnstashAction.PUBLISHED, [], "w", 3, reader="r", sources=["a", "b"])

    assert verdict(entry, [own, *others]) == expected


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
