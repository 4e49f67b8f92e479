"""StagedEnds: what ends when, and what it costs to ask."""

import pytest

from tests.helpers.brokers.broker import Client
from tests.helpers.steps import Counted, steps
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.staged_ends import StagedEnds
from wakeq.protocol.queue.ledger.staging import Name, Staging

SOURCE, STASH = ("c", "s"), ("t", "s")


def test_staged_end_that_has_passed_is_returned_once() -> None:
    ends = StagedEnds()
    ends.set(SOURCE, {1: 10, 2: 30})
    ends.set(STASH, {0: 20})

    assert ends.first_ms == 10
    assert ends.over(9) == []
    assert ends.over(20) == [("c", "s", 1), ("t", "s", 0)]
    assert ends.first_ms == 30
    assert ends.over(30) == [("c", "s", 2)]
    assert (ends.over(NEVER - 1), ends.first_ms) == ([], NEVER)


def test_renewed_claim_ends_later() -> None:
    ends = StagedEnds()
    ends.set(SOURCE, {1: 10, 2: 10})

    assert ends.renew(SOURCE, 50, 9)

    assert ends.over(49) == []
    assert ends.first_ms == 50
    assert not ends.renew(("c", "other"), 50, 9)


def test_claim_whose_time_is_over_is_not_renewed() -> None:
    ends = StagedEnds()
    ends.set(SOURCE, {1: 10, 2: 20})

    assert ends.renew(SOURCE, 50, 10)
    assert (ends.over(49), ends.over(50)) == ([("c", "s", 1)], [("c", "s", 2)])
    assert not ends.renew(SOURCE, 90, 60)


def test_settled_claim_does_not_end() -> None:
    ends = StagedEnds()
    ends.set(SOURCE, {1: 10, 2: 20})

    ends.set(SOURCE, {2: 20})
    ends.set(STASH, {})

    assert ends.over(30) == [("c", "s", 2)]
    assert not ends.renew(SOURCE, 50, 9)


def test_lapsing_claim_does_not_end_again() -> None:
    ends = StagedEnds()
    ends.set(SOURCE, {1: 10, 2: 20})
    (lapsing,) = ends.over(10)

    ends.set(SOURCE, {1: 10, 2: 20})

    assert ends.lapsing == {lapsing}
    assert ends.over(30) == [("c", "s", 2)]
    ends.lapsing.clear()
    ends.set(SOURCE, {1: 40})
    assert ends.over(40) == [("c", "s", 1)]


def cost_of_one_end(count: int) -> int:
    """The first of so many that end one after the other."""
    ends = StagedEnds()
    for place in range(count):
        ends.set((STASH[0], f"t{place}"), {0: Counted(place)})
    return steps(lambda: ends.over(0))


def test_end_among_many_ends_costs_about_as_much_as_among_few() -> None:
    assert cost_of_one_end(2_000) < 2 * cost_of_one_end(250)


def test_renewals_leave_nothing_behind() -> None:
    ends = StagedEnds()
    ends.set(STASH, {0: 50_000})
    for until_ms in range(20, 20_000):
        ends.set(SOURCE, {1: until_ms})

    assert len(ends._heap) < 100
    assert (ends.over(19_998), ends.over(19_999), ends.over(50_000)) == ([], [("c", "s", 1)], [("t", "s", 0)])


def test_queue_that_never_stages_keeps_nothing_for_it(client: Client) -> None:
    client.publish("q", "a")

    assert client.broker.queue("q").leases.staged_ends is None  # type: ignore[union-attr]
    assert client.broker.queue("q").ledger.staging is None


def test_cost_of_a_stash_does_not_depend_on_the_others(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        client.call("STASH", "q", stash=f"t{number}", messages=["a"])
    looked: list[Name] = []
    ends_of = Staging.ends_of

    def counted(staging: Staging, name: Name) -> dict[int, int]:
        looked.append(name)
        return ends_of(staging, name)

    monkeypatch.setattr(Staging, "ends_of", counted)

    client.call("STASH", "q", stash="one more", messages=["a"])

    assert looked == [("t", "one more")]
