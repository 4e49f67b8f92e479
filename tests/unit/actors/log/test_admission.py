"""Admission: what needs room is refused while there is none, and what makes room is not."""

from typing import Any

import pytest

from wakeq.actors.log.admission import Admission
from wakeq.actors.mail import Crowded, Pressure
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    CreateQueue,
    DeleteQueue,
    Draft,
    Entry,
    Expired,
    Imported,
    Publish,
    PurgeQueue,
    Stash,
)
from wakeq.protocol.names import DEFAULT_QUEUE
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Refusal

Q = "q"
NO_ROOM = Refusal("DISK_FULL", "no room")
TOO_MANY = Refusal("TOO_MANY_QUEUES", "too many")
DRAFT = Draft(b"m")


class Hearing:
    def __init__(self) -> None:
        self.session = self
        self.heard: list[Any] = []

    def tell(self, answer: Any) -> None:
        self.heard.append(answer)


def ack(*publishes: Publish, dead: bool = False) -> Ack:
    return Ack(Q, 1, [1], [ANY_TOKEN], list(publishes), dead=dead)


def outcome(admission: Admission, entry: Entry) -> Refusal | None:
    """Return why an entry is refused, None if it is admitted."""
    asker = Hearing()
    admitted = admission.admitted([Proposal(entry, asker)])
    assert bool(admitted) != bool(asker.heard)
    return asker.heard[0] if asker.heard else None


def test_everything_is_taken_at_first() -> None:
    assert Admission().takes_all


@pytest.mark.parametrize(
    ("entry", "is_refused"),
    [
        (Publish(Q, [DRAFT]), True),
        (Stash(Q, [DRAFT], "s", 0, 1_000), True),
        (CreateQueue(Q, {}), True),
        (Imported(Q), True),
        (ack(Publish(Q, [DRAFT])), True),
        (ack(), False),
        (ack(Publish(Q, [DRAFT]), dead=True), False),
        (Expired(Q, 1, [1]), False),
        (DeleteQueue(Q), False),
        (PurgeQueue(Q), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_entries_that_need_room_are_refused_while_there_is_none(entry: Entry, is_refused: bool) -> None:
    admission = Admission()
    admission.on_pressure(Pressure(NO_ROOM))

    refused = outcome(admission, entry)
    admission.on_pressure(Pressure(None))

    assert refused == (NO_ROOM if is_refused else None)
    assert admission.takes_all


@pytest.mark.parametrize(
    ("entry", "is_refused"),
    [
        (Publish("new", [DRAFT]), True),
        (Publish("new", [DRAFT], must_exist=True), False),
        (Publish(Q, [DRAFT]), False),
        (Publish(DEFAULT_QUEUE, [DRAFT]), False),
        (Stash("new", [DRAFT], "s", 0, 1_000), True),
        (CreateQueue("new", {}), True),
        (CreateQueue(Q, {}), False),
        (ack(Publish("new", [DRAFT])), True),
        (ack(Publish(Q, [DRAFT])), False),
        (ack(Publish("new", [DRAFT]), dead=True), False),
        (DeleteQueue("new"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_entries_that_create_a_queue_are_refused_while_there_are_too_many(entry: Entry, is_refused: bool) -> None:
    admission = Admission()
    admission.on_crowded(Crowded(TOO_MANY, lambda name: name == Q))

    refused = outcome(admission, entry)
    admission.on_crowded(Crowded(None, lambda name: name == Q))

    assert refused == (TOO_MANY if is_refused else None)
    assert admission.takes_all


def test_entries_that_are_admitted_keep_their_order() -> None:
    admission = Admission()
    admission.on_pressure(Pressure(NO_ROOM))
    proposals = [Proposal(entry) for entry in (ack(), Publish(Q, [DRAFT]), DeleteQueue(Q))]

    assert admission.admitted(proposals) == [proposals[0], proposals[2]]


def test_end_of_one_shortage_does_not_end_the_other() -> None:
    admission = Admission()
    admission.on_pressure(Pressure(NO_ROOM))
    admission.on_crowded(Crowded(TOO_MANY, lambda _name: False))

    admission.on_pressure(Pressure(None))

    assert not admission.takes_all
    assert outcome(admission, Publish(Q, [DRAFT])) == TOO_MANY
