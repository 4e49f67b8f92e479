"""The journal of any history, with crashes, sealed segments and refusals, agrees with the ledgers.

A broker is used at random.  Afterwards the totals that each queue has kept, and the uids that the clients were told,
must be those that the journal adds up to, however the history is cut into spans, and whichever nodes tell it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.clusters.led import LedBroker
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from tests.helpers.journal.files import EVERYTHING, rows_of
from tests.helpers.journal.random_life import KEEP, SEGMENT_BYTES, Life, broker_of_one
from tests.helpers.lakes.lives import rows_in, told_by, without_cluster
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.pipeline.journal.rows import Wanted
from wakeq.pipeline.lake import archiving
from wakeq.pipeline.lake.archiving import archive
from wakeq.protocol.uid import prefix

CHANCE_OF_AN_ARCHIVE = 0.05  # behind each step
CHANCE_OF_A_CRASH = 0.06  # behind each step, beside those that are steps
EVENTS_OF_TOTALS = ("published", "delivered", "acked", "released", "expired", "dead", "moved")


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "STEP_EVENTS", 20)


def millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@pytest.fixture
def small_spans() -> Iterator[None]:
    before, journal_plan.SPAN_BYTES_MIN = journal_plan.SPAN_BYTES_MIN, SEGMENT_BYTES
    yield
    journal_plan.SPAN_BYTES_MIN = before


@pytest.mark.usefixtures("small_spans")
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 250))
def test_journal_of_any_history_adds_up_to_the_counts_of_the_queues(seed: int, steps: int) -> None:
    with memory_folder() as folder:
        life = Life(broker_of_one(folder / "data"), random.Random(seed))
        for _ in range(steps):
            life.step()
        life.write_down()

        rows = rows_of(folder / "data", wanted=EVERYTHING)

        check_that_it_adds_up(rows, life)
        since, until = sorted(life.chance.choice(rows)["at"] for _ in range(2))
        chosen = Wanted(columns=EVERYTHING.columns, since_ms=millis(since), until_ms=millis(until))
        assert rows_of(folder / "data", wanted=chosen) == [row for row in rows if since <= row["at"] < until]
        life.broker.close()


@pytest.mark.usefixtures("small_spans", "small_steps")
@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
def test_lake_that_is_filled_in_steps_has_each_event_once(seed: int, steps: int) -> None:
    with memory_folder() as folder:
        data, lake = folder / "data", folder / "lake"
        life = Life(broker_of_one(data), random.Random(seed))
        for _ in range(steps):
            life.step()
            if life.chance.random() < CHANCE_OF_AN_ARCHIVE:
                archive([data], lake, bodies=True)
        life.write_down()
        archive([data], lake, bodies=True)

        assert without_cluster(rows_in(lake)) == told_by(data)
        life.broker.close()


@pytest.mark.usefixtures("small_spans")
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 80))
def test_journals_of_several_nodes_hold_all_committed_events_whichever_node_led(seed: int, steps: int) -> None:
    with memory_folder() as folder:
        broker = LedBroker(folder, segment_bytes_max=SEGMENT_BYTES, keep=KEEP)
        life = Life(broker, random.Random(seed))
        for _ in range(steps):
            life.step()
            if life.chance.random() < CHANCE_OF_A_CRASH:
                life.crash()
        life.write_down()

        rows = rows_of(broker.leader.path, wanted=EVERYTHING)

        check_that_it_adds_up(rows, life)
        for order in permutations(broker.places):
            assert rows_of(*order, wanted=EVERYTHING) == rows
        broker.close()


def check_that_it_adds_up(rows: list[dict[str, Any]], life: Life) -> None:
    done = [row for row in rows if row["outcome"] == "done"]
    assert {row["outcome"] for row in rows}.isdisjoint({"open"})
    published = [row["uid"] for row in done if row["event"] == "published"]
    assert len(published) == len(set(published)), "since each incarnation has an id of its own"
    assert set(life.uids) <= set(published)
    delivered = {row["uid"] for row in done if row["event"] == "delivered"}
    assert delivered <= set(published)
    assert {row["uid"] for row in done if row["event"] == "acked" and row["delivery"] is None} <= delivered
    assert delivered.isdisjoint(row["uid"] for row in done if row["event"] == "cancelled")
    assert len({(row["index"], row["place"]) for row in rows}) == len(rows)
    for name in life.broker.queues.catalog.queues:
        ledger = life.broker.queue(name).ledger
        mine = prefix(ledger.id)
        counts = Counter(row["event"] for row in done if row["queue"] == name and (row["uid"] or "").startswith(mine))
        counts["acked"] += counts["cancelled"]
        counts["published"] += 0 if ledger.staging is None else ledger.staging.stashed  # a ledger counts it already
        assert {event: counts[event] for event in EVENTS_OF_TOTALS} == {
            event: getattr(ledger.totals, event) for event in EVENTS_OF_TOTALS
        }, name
