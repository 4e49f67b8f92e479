"""kill -9 of the broker in a loop under a Worker: no job is lost, none runs after its ack was confirmed, and the worker
reconnects by itself each time.

The handlers write a ledger of what ran, and the worker's client keeps a history of what was said; both lie outside
of the broker.  WAKEQ_WORKER_KILLS sets the number of kills, WAKEQ_SEED the moments at which they come.
"""

import itertools
import math
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.histories.checker import check
from tests.helpers.histories.history import Event, History, in_time_order, load_events
from tests.helpers.loads.load import TIMEOUT_S
from tests.helpers.loads.tasks import body_of, digest_of
from tests.helpers.network.ports import free_port
from tests.helpers.programs.started import Started, eventually
from wakeq import Client

COUNTS = ("ready", "delayed", "leased")
KILLS = int(os.environ.get("WAKEQ_WORKER_KILLS", "50"))
BACK_S = 10.0  # from the broker being ready until a handler has run again
ACKS_PER_KILL_MIN = 100
AHEAD_MAX = 300  # messages that are published and not handled
OPS_OF_WORKER = 10**9  # its numbers begin here, behind those of the publisher

RECORDED = """
import os, time
from pathlib import Path
from tests.helpers.histories.history import History
from tests.helpers.loads.tasks import digest_of, task_of
from wakeq import Message, Worker
from wakeq.client.aio import AsyncClient

history = History()
history._last_op = int(os.environ["FIRST_OP"])
ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

class RecordingClient(AsyncClient):
    async def fetch_many(self, queue, count, *, wait=0):
        op, first_saying = history.invoke("deliver", queue=queue), history.invoke("deliver", queue=queue)
        connection = self._caller._connection
        messages = await super().fetch_many(queue, count, wait=wait)
        if self._caller._connection is connection:
            history.fail("deliver", first_saying)  # else it was said twice, and what the first one brought is unknown
        for one in messages:
            body = one.text()
            facts = {"uid": one.uid, "lease": one.lease, "error_count": one.delivery - 1, "digest": digest_of(body)}
            history.ok("deliver", op, task=task_of(body), queue=queue, **facts)
        if not messages:
            history.fail("deliver", op)
        return messages

    async def ack_many(self, messages):
        ops = {}
        for one in messages:
            task = task_of(one.text())
            ops[one.uid] = history.invoke("ack", task=task, queue=one.queue, uid=one.uid, lease=one.lease)
        outcome = await super().ack_many(messages)
        for uid, op in ops.items():
            if uid in outcome.done:
                history.ok("ack", op, uid=uid)
            elif uid in outcome.stale:
                history.fail("ack", op)
            else:
                history.unknown("ack", op)  # gone: by the first saying of it, whose answer died with the broker
        return outcome

class RecordedWorker(Worker):
    def _make_client(self, engine, **_asked):
        return RecordingClient(self.address, listener=engine, reconnect_for_s=float("inf"))

worker = RecordedWorker(concurrency=4)

@worker.task("jobs", timeout=5)
def job(message: Message) -> None:
    os.write(ledger, f"{time.monotonic()} {task_of(message.text())}\\n".encode())
    time.sleep(0.001)

if __name__ == "__main__":
    worker.run()
    history.save(Path(os.environ["HISTORY"]))
"""


class Publisher:
    """A thread that publishes as long as the worker keeps up; `stored` are the tasks that the broker confirmed."""

    def __init__(self, address: str, history: History, ran: Callable[[], int]) -> None:
        self.stored: list[str] = []
        self._history = history
        self._ran = ran
        self._client = Client(address, reconnect_for_s=60)
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the publisher hangs"
        self._client.close()

    def _work(self) -> None:
        while not self._stopping.is_set():
            if len(self.stored) - self._ran() > AHEAD_MAX:
                self._stopping.wait(0.005)
                continue
            tasks = [f"t{next(self._numbers)}" for _ in range(10)]
            batch, bodies = self._history.new_id(), [body_of(task) for task in tasks]
            ops = [
                self._history.invoke(
                    "publish", task=task, queue="jobs", digest=digest_of(body), batch=batch, timeout_s=TIMEOUT_S
                )
                for task, body in zip(tasks, bodies, strict=True)
            ]
            uids = self._client.publish_many("jobs", bodies, timeout=TIMEOUT_S)
            for task, op, uid in zip(tasks, ops, uids, strict=True):
                self._history.ok("publish", op, task=task, uid=uid)
            self.stored += tasks


class Ledger:
    """What the handlers wrote: when each task began to run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.touch()

    def work(self, folder: Path, address: str) -> Started:
        """Start the worker that writes it."""
        program = folder / "recorded.py"
        program.write_text(RECORDED, encoding="utf-8")
        environment = {
            "WAKEQ_BROKER": address,
            "FIRST_OP": str(OPS_OF_WORKER),
            "LEDGER": str(self._file),
            "HISTORY": str(folder / "history.jsonl"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        }
        return Started([sys.executable, str(program)], environment=environment)

    def count(self) -> int:
        return self._file.read_bytes().count(b"\n")

    def runs(self) -> list[tuple[float, str]]:
        entries = [line.split() for line in self._file.read_text().splitlines()]
        return [(float(at_s), task) for at_s, task in entries]


@pytest.mark.long
def test_worker_reconnects_and_loses_no_job_when_its_broker_is_killed_repeatedly(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}, {KILLS} kills")  # shown with a failure: WAKEQ_SEED repeats its moments
    draw, history = random.Random(seed), History()
    port = str(free_port())
    broker, address = start_broker("--worker-port", port), f"127.0.0.1:{port}"
    ledger = Ledger(tmp_path / "ledger")

    with ledger.work(tmp_path, address) as worker:
        publisher = Publisher(address, history, ledger.count)
        eventually(lambda: ledger.count() > 0, "the worker is at work", BACK_S)
        for _ in range(KILLS):
            threading.Event().wait(draw.uniform(0.0, 0.1))
            history.crash()
            broker.restart()
            before = ledger.count()
            eventually(lambda before=before: ledger.count() > before, "the worker is back", BACK_S)
        publisher.stop()
        with Client(address) as client:
            eventually(lambda: not any(client.stats("jobs")[one] for one in COUNTS), "nothing is left", 60)
        assert worker.stop() == 0, worker.errors

    demand(publisher.stored, ledger.runs(), [*history.events, *load_events(tmp_path / "history.jsonl")])


def demand(stored: list[str], runs: list[tuple[float, str]], events: list[Event]) -> None:
    """All that was stored ran, nothing ran after its ack was confirmed, and no promise of the broker was broken."""
    report = check(in_time_order(events))
    print(report.explain())
    acked_s = {event.uid: event.at_s for event in events if (event.kind, event.phase) == ("ack", "ok")}
    uid_of = {event.task: event.uid for event in events if (event.kind, event.phase) == ("publish", "ok")}
    late = [task for at_s, task in runs if task in uid_of and at_s > acked_s.get(uid_of[task], math.inf)]

    assert not report.violations, report.explain()
    assert set(stored) <= {task for _, task in runs}, "jobs were lost"
    assert not late, f"ran after their acks were confirmed: {late[:10]}"
    assert report.seen["acks_ok"] > KILLS * ACKS_PER_KILL_MIN, f"invalid run, too idle: {report.explain()}"
