"""Steps: slices of long work, and a ledger that is the same whether it works in steps or in one go."""

from collections.abc import Sequence

import pytest

from tests.helpers.steps import in_one_go
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Draft, Publish
from wakeq.protocol.queue import steps
from wakeq.protocol.queue.ledger import ledger as module
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.queue.ledger.uniform import shape_of, uniform_bodies
from wakeq.protocol.queue.steps import Steps, slices

MIXED = [Draft(b"x" * (place % 3), priority=place % 2, delay_ms=place % 5) for place in range(1_300)]
PLAIN_THEN_MIXED = [Draft(b"x")] * 700 + MIXED


@pytest.mark.parametrize(("count", "found"), [(0, []), (2, [(0, 2)]), (5, [(0, 2), (2, 4), (4, 5)])])
def test_slices_cover_all_messages_in_their_order(count: int, found: list[tuple[int, int]]) -> None:
    assert [(among.start, among.stop) for among in slices(count, 2)] == found


def test_value_of_the_last_step_is_the_result() -> None:
    taken = []

    def work() -> Steps[str]:
        for step in range(3):
            taken.append(step)
            yield
        return "done"

    assert in_one_go(work()) == "done"
    assert taken == [0, 1, 2]


@pytest.mark.parametrize(
    "drafts",
    [
        MIXED,
        PLAIN_THEN_MIXED,
        uniform_bodies([b"xy"] * 1_500),
        uniform_bodies([b"xy"] * 1_500, shape_of(3, 0, 9_000, 0)),
    ],
    ids=["mixed", "plain, then mixed", "alike", "alike with a priority and an expiry"],
)
def test_publish_in_steps_leaves_the_ledger_as_one_in_one_go_does(
    drafts: Sequence[Draft], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers = [Ledger("q", 1, Policies(), Limits()) for _ in range(2)]
    entry = Publish("q", drafts)
    monkeypatch.setattr(steps, "STEP_MESSAGES", 300)
    monkeypatch.setattr(module, "STEP_MESSAGES", 300)

    in_steps = ledgers[1].publish_in_steps(entry, 1_000)
    first = next(in_steps), ledgers[1].columns.living
    results = [ledgers[0].publish(entry, 1_000), in_one_go(in_steps)]

    assert first == (None, 300)
    assert results[0] == results[1]
    assert ledgers[0].totals == ledgers[1].totals
    one, other = (ledger.columns for ledger in ledgers)
    assert (one.living, one.bytes, one.next_number) == (other.living, other.bytes, other.next_number)
    for number in one.living_numbers():
        for value in (one.priority_of, one.expires_of, one.published_due_of):
            assert value(number) == getattr(other, value.__name__)(number)


@pytest.mark.parametrize(
    "entry",
    [Publish("q", [Draft(b"")] * 9, id="once"), Publish("q", [Draft(b"")] * 9, session="s", ordinals=range(1, 10))],
    ids=["id", "session"],
)
def test_publish_that_somebody_else_must_know_of_is_one_step(entry: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_MESSAGES", 2)
    ledger = Ledger("q", 1, Policies(), Limits())

    with pytest.raises(StopIteration) as end:
        next(ledger.publish_in_steps(entry, 1_000))

    assert len(list(end.value.value)) == 9
