"""The journal tells what has happened: of any history, with crashes, sealed segments and refusals, as the ledgers do.

A broker is used at random.  Afterwards the totals that each queue has kept, and the uids that the clients were told,
must be those that the journal adds up to, however the history is cut into spans.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.broker import Broker, Client
from wakeq.pipeline import journal_plan
from wakeq.pipeline.journal import Wanted, events_of
from wakeq.pipeline.journal_plan import History
from wakeq.protocol.uid import prefix
from wakeq.storage.journal import Keep

QUEUES = ("a", "b-long-name", "limited", "")
SEGMENT_BYTES = 3_000
EVENTS_OF_TOTALS = ("published", "delivered", "acked", "released", "expired", "dead")


class Life:
    """A broker that is used at random, and what its clients were told."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.chance = chance
        self.broker = Broker(
            path, segment_bytes_max=SEGMENT_BYTES, snapshot_bytes_min=1 << 12, keep=Keep(1 << 40, 1 << 40)
        )
        self.client: Client = self.broker.client()
        self.uids: list[str] = []
        self.held: list[tuple[str, str, str]] = []
        self.client.call("CREATE", "limited", max_size=2, max_deliveries=2, dead_letter="letters")

    def step(self) -> None:
        actions = (
            self.publish, self.publish, self.publish, self.publish_many, self.publish_once, self.fetch, self.fetch,
            self.acknowledge, self.acknowledge, self.follow_up, self.give_back, self.acknowledge_nonsense, self.wait,
            self.empty, self.delete, self.crash, self.flush,
        )  # fmt: skip
        self.chance.choice(actions)()

    def queue(self) -> str:
        return self.chance.choice(QUEUES)

    def told(self, reply: dict[str, Any]) -> None:
        if reply["cmd"] == "ok":
            self.uids += reply["uids"] if "uids" in reply else [reply["uid"]]

    def publish(self) -> None:
        fields = self.chance.choice(({}, {"priority": -3}, {"delay": 5}, {"expires": 9}, {"headers": {"a": "b"}}))
        self.told(self.client.call("PUB", self.queue(), message="x" * self.chance.randrange(300), **fields))

    def publish_many(self) -> None:
        messages = [{"message": str(number)} for number in range(self.chance.randrange(1, 40))]
        for reply in self.client.ask({"cmd": "PUB", "qname": self.queue(), "messages": messages}):
            self.told(reply)

    def publish_once(self) -> None:
        reply = self.client.call("PUB", self.queue(), message="once", id=str(self.chance.randrange(4)))
        if reply.get("uid") not in self.uids:
            self.told(reply)

    def fetch(self) -> None:
        name = self.queue()
        reply = self.client.call("FET", name)
        if reply["cmd"] == "msg":
            self.held.append((name, reply["uid"], reply["lease"]))

    def any_held(self) -> tuple[str, str, str] | None:
        return self.chance.choice(self.held) if self.held else None

    def acknowledge(self) -> None:
        held = self.any_held()
        if held:
            self.client.call("ACK", held[0], uid=held[1], lease=held[2])

    def follow_up(self) -> None:
        held = self.any_held()
        if held:
            follow_ups = [{"qname": self.queue(), "message": "next"}, {"qname": "made", "message": "new"}]
            reply = self.client.call("ACK", held[0], uid=held[1], lease=held[2], publish=follow_ups)
            self.uids += reply.get("published", ())

    def give_back(self) -> None:
        held = self.any_held()
        if held:
            self.client.call("NACK", held[0], uid=held[1], lease=held[2])

    def acknowledge_nonsense(self) -> None:
        self.client.call(
            "ACK", self.chance.choice((*QUEUES, "nowhere")), uid=f"0000001_000000{self.chance.randrange(10, 99)}"
        )

    def wait(self) -> None:
        self.broker.advance(self.chance.choice((0.1, 3, 61)))

    def empty(self) -> None:
        if self.chance.random() < 0.2:
            self.client.call("PURGE", self.queue())

    def delete(self) -> None:
        if self.chance.random() < 0.2:
            self.client.call("DROP", self.chance.choice(("a", "made", "nowhere")))

    def crash(self) -> None:
        self.broker.crash_and_restart()
        self.client = self.broker.client()

    def flush(self) -> None:
        self.broker.flush()


def rows_of(path: Path, *, cores: int = 1) -> list[dict[str, Any]]:
    batches = [batch for span in History([path]).spans(cores=cores) for batch in events_of(span, Wanted(body=True))]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist()
    return rows


@pytest.fixture
def small_spans() -> Iterator[None]:
    before, journal_plan.SPAN_BYTES_MIN = journal_plan.SPAN_BYTES_MIN, SEGMENT_BYTES
    yield
    journal_plan.SPAN_BYTES_MIN = before


@pytest.mark.usefixtures("small_spans")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 250))
def test_the_journal_of_any_history_adds_up_to_what_the_queues_have_counted(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder) / "data", random.Random(seed))
        for _ in range(steps):
            life.step()
        life.broker.advance(0.1)  # deliveries go to the log a little later
        life.broker.flush()

        rows = rows_of(Path(folder) / "data")

        done = [row for row in rows if row["outcome"] == "done"]
        assert {row["outcome"] for row in rows}.isdisjoint({"open"})
        published = [row["uid"] for row in done if row["event"] == "published"]
        assert len(published) == len(set(published))
        assert set(life.uids) <= set(published)
        for name in life.broker.queues.catalog.queues:
            ledger = life.broker.queue(name).ledger
            mine = prefix(ledger.id)
            counts = Counter(
                row["event"] for row in done if row["queue"] == name and (row["uid"] or "").startswith(mine)
            )
            assert {event: counts[event] for event in EVENTS_OF_TOTALS} == {
                event: getattr(ledger.totals, event) for event in EVENTS_OF_TOTALS
            }, name
        assert len({(row["index"], row["place"]) for row in rows}) == len(rows)
        life.broker.close()
