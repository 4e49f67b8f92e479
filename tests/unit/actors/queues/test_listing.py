"""A look at many queues, a slice at a time."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.listing import SLICE_QUEUES, Listing
from wakeq.protocol.queue.orders import NOBODY
from wakeq.protocol.queue.outcomes import Refusal


def test_next_slice_comes_when_all_of_this_one_have_answered() -> None:
    names = [f"q-{number}" for number in range(SLICE_QUEUES + 2)]
    listing = Listing(NOBODY, names)

    first = listing.next_slice()
    complete = [listing.add(place, {"qname": name}) for place, name in reversed(first)]
    second = listing.next_slice()

    assert [name for _, name in first] == names[:SLICE_QUEUES]
    assert complete == [False] * (SLICE_QUEUES - 1) + [True]
    assert [name for _, name in second] == names[SLICE_QUEUES:]


def test_rows_are_in_the_order_of_the_names_without_missing_queues() -> None:
    listing = Listing(NOBODY, ["a", "b", "c", "d"])
    rows: list[dict[str, Any] | Refusal | None] = [{"qname": "a"}, Refusal("BUSY", "..."), None, {"qname": "d"}]

    for place, _ in reversed(listing.next_slice()):
        listing.add(place, rows[place])

    assert listing.rows == [{"qname": "a"}, {"qname": "d"}]


@pytest.mark.parametrize("look", ["LIST", "STATS", "flush"])
def test_mail_during_a_look_at_all_queues_waits_behind_one_slice_only(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    for number in range(4 * SLICE_QUEUES):
        client.publish(f"q-{number}")
    waiting: list[int] = []
    receive = QueueProcess.on_receive

    def count_and_receive(self: QueueProcess, message: Any) -> None:
        waiting.append(len(self.runtime._ready))
        receive(self, message)

    monkeypatch.setattr(QueueProcess, "on_receive", count_and_receive)
    if look == "flush":
        broker.flush()
    else:
        client.call(look)

    assert len(waiting) >= 4 * SLICE_QUEUES
    assert max(waiting) <= SLICE_QUEUES + 5
