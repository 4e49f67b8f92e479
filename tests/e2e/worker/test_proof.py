"""A Worker keeps its promises when it is shut down at any step, and whatever its handlers do.

The handlers write a ledger of what ran, outside of both the worker and the broker.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.fault_proxy import FaultProxy
from tests.helpers.programs.started import Started, eventually
from wakeq import Client

PROGRAM = """
import os, signal, sys, time
from wakeq import Retry, Worker, current

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(what, uid="-"):
    os.write(ledger, f"{time.monotonic()} {what} {uid}\\n".encode())

class NotingWorker(Worker):
    def _signalled(self, count):
        super()._signalled(count)
        note(f"signal-{count}")

worker = NotingWorker(concurrency=2, grace=float(os.environ.get("GRACE", 25)))
AGAIN = Retry(max=1, delay=0, jitter=0)

def end(how):
    match how:
        case "sleep":
            time.sleep(0.2)
        case "gate":
            while not os.path.exists(os.environ["LEDGER"] + "-gate"):
                time.sleep(0.01)
        case "raise":
            raise ValueError("no")
        case "system exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "exit":
            os._exit(3)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "block":
            time.sleep(3600)
        case "spin":
            while True:
                pass
        case "fork" if not os.fork():
            sys.exit(3)

@worker.task("jobs", timeout=60, retry=AGAIN)
def job(how: str) -> None:
    note("began", current().uid)
    end(how)
    note("ended", current().uid)

@worker.task("processes", timeout=60, mode="process", retry=AGAIN)
def in_process(how: str) -> None:
    job(how)

@worker.task("coroutines", timeout=60, retry=AGAIN)
async def in_coroutine(how: str) -> None:
    job(how)

@worker.task("hasty", timeout=60, retry=AGAIN, max_run=1)
def in_haste(how: str) -> None:
    job(how)

@worker.task("hasty-processes", timeout=60, mode="process", retry=AGAIN, max_run=1)
def process_in_haste(how: str) -> None:
    job(how)

if __name__ == "__main__":
    worker.run()
"""
QUEUES = ("jobs", "processes", "coroutines", "hasty", "hasty-processes")
COUNTS = ("ready", "delayed", "leased")


class Stage:
    """A broker, a proxy before it, a client that goes straight to it, and a worker that comes through the proxy."""

    def __init__(self, folder: Path, broker: BrokerProcess, proxy: FaultProxy, client: Client) -> None:
        self.broker = broker
        self.proxy = proxy
        self.client = client
        self._file, self._ledger = folder / "program.py", folder / "ledger"
        self._file.write_text(PROGRAM, encoding="utf-8")
        self._ledger.touch()

    def work(self, **environment: str) -> Started:
        environment |= {"WAKEQ_BROKER": self.proxy.address, "LEDGER": str(self._ledger)}
        return Started([sys.executable, str(self._file)], environment=environment)

    def open_gate(self) -> None:
        """Let handlers of "gate" end."""
        self._ledger.with_name("ledger-gate").touch()

    def noted(self, what: str) -> list[str]:
        """The uids of the messages of which this was noted, in the order of noting."""
        entries = [line.split() for line in self._ledger.read_text().splitlines()]
        return [uid for _, kind, uid in entries if kind == what]

    def publish(self, count: int, how: str = "return", queue: str = "jobs") -> list[str]:
        return self.client.publish_many(queue, [{"how": how}] * count)

    def stop(self, worker: Started) -> None:
        """SIGTERM, and return when the worker has taken it."""
        worker.signal(signal.SIGTERM)
        eventually(lambda: bool(self.noted("signal-1")), "the signal was taken")

    def demand_clean(self, uids: list[str], queue: str = "jobs") -> None:
        """Each message was handled once or is in the queue without a failure; none is leased."""
        stats = self.client.stats(queue)
        left = [one for batch in iter(lambda: self.client.fetch_many(queue, 1000), []) for one in batch]
        assert (stats["leased"], stats["delayed"]) == (0, 0)
        assert sorted([*self.noted("ended"), *(one.uid for one in left)]) == sorted(uids)
        assert [one.failures for one in left] == [0] * len(left)
        assert sorted(self.noted("began")) == sorted(self.noted("ended"))


@pytest.fixture
def broker(clean_broker: BrokerProcess) -> BrokerProcess:
    """One broker is enough for all of these tests."""
    return clean_broker


@pytest.fixture
def stage(broker: BrokerProcess, tmp_path: Path) -> Iterator[Stage]:
    """Return a stage without a worker."""
    host, port = broker.worker_address
    with FaultProxy((host, port)) as proxy, Client(f"{host}:{port}") as client:
        for queue in QUEUES:
            client.create_queue(queue)
        yield Stage(tmp_path, broker, proxy, client)


# A stop at every step -----------------------------------------------------------------------------------------

STEPS: dict[str, bytes] = {
    "before HELLO is answered": b'"cmd":"hello"',
    "before SUB is answered": b'"cmd":"oksub"',
    "before FET is said": b'"cmd":"FET"',
    "between FET and its answer": b'"cmd":"msgs"',
    "between FET and the answer that there is nothing": b'"cmd":"nomsg"',
    "before ACK is said": b'"cmd":"ACK"',
    "before ACK is answered": b'"cmd":"okack"',
    "before ISLP is said": b'"cmd":"ISLP"',
    "before ISLP is answered": b'"cmd":"okslp"',
}


@pytest.mark.parametrize("step", STEPS)
def test_shutdown_leaves_nothing_behind(stage: Stage, step: str) -> None:
    uids = stage.publish(5)
    stage.proxy.freeze_at(STEPS[step])
    with stage.work() as worker:
        stage.proxy.wait_frozen()
        stage.stop(worker)
        stage.proxy.mend()

        assert worker.end() == 0

    stage.demand_clean(uids)


@pytest.mark.parametrize("step", ["before HELLO is answered", "before SUB is answered"])
def test_shutdown_beside_a_broker_that_answers_nothing_succeeds(stage: Stage, step: str) -> None:
    stage.proxy.freeze_at(STEPS[step])
    with stage.work() as worker:
        stage.proxy.wait_frozen()

        assert worker.stop() == 0


def test_shutdown_while_handlers_run_releases_prefetched_messages(stage: Stage) -> None:
    uids = stage.publish(3000)
    with stage.work() as worker:
        eventually(lambda: len(stage.noted("ended")) > 100, "it is at work")
        uids += stage.publish(10, "sleep")
        stage.stop(worker)

        assert worker.end() == 0

    stage.demand_clean(uids)


def test_shutdown_while_the_worker_sleeps_leaves_nothing_behind(stage: Stage) -> None:
    with stage.work() as worker:
        eventually(lambda: stage.client.stats("jobs")["sleepers"] == 1, "it sleeps")

        assert worker.stop() == 0

    assert stage.client.stats("jobs")["sleepers"] == 0
    stage.demand_clean([])


def test_shutdown_while_the_broker_is_briefly_away_acknowledges_afterwards(stage: Stage) -> None:
    uids = stage.publish(1, "gate")
    with stage.work() as worker:
        eventually(lambda: bool(stage.noted("began")), "a handler runs")
        stage.broker.kill()
        stage.stop(worker)
        address = stage.broker.start().worker_address
        # The worker waits 5 s for its last reports, so it must not wait for the start of a broker.
        stage.open_gate()
        eventually(lambda: bool(stage.noted("ended")), "the handler has ended")
        stage.proxy.target = address

        assert worker.end() == 0

    with Client("{}:{}".format(*stage.broker.worker_address)) as stage.client:
        stage.demand_clean(uids)


def test_shutdown_while_the_broker_is_gone_ends_in_time(stage: Stage) -> None:
    stage.publish(1, "sleep")
    with stage.work() as worker:
        eventually(lambda: bool(stage.noted("began")), "a handler runs")
        stage.broker.kill()

        assert worker.stop() == 1


def test_signal_to_the_process_group_during_a_start_blames_no_message(stage: Stage) -> None:
    uids = stage.publish(2, queue="processes")
    with stage.work() as worker:
        eventually(lambda: len(children_of(worker.pid)) >= 2, "a process is being made")  # the first one is a tracker
        os.killpg(worker.pid, signal.SIGTERM)

        assert worker.end() == 0

    stage.demand_clean(uids, "processes")


def children_of(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


# Handlers -----------------------------------------------------------------------------------------------------

BAD_ENDS = [
    ("jobs", "raise", "ValueError: no"),
    ("jobs", "system exit", "SystemExit: 3"),
    ("jobs", "interrupt", "KeyboardInterrupt"),
    ("hasty", "block", "the handler ran for more than 1 s (max_run)"),
    ("hasty", "spin", "the handler ran for more than 1 s (max_run)"),
    ("processes", "raise", "ValueError: no"),
    ("processes", "system exit", "SystemExit: 3"),
    ("processes", "exit", "its process ended with exit code 3"),
    ("processes", "killed", "its process was ended by SIGKILL"),
    ("hasty-processes", "block", "the handler ran for more than 1 s (max_run)"),
    ("hasty-processes", "spin", "the handler ran for more than 1 s (max_run)"),
]


def test_worker_continues_whatever_its_handlers_do(stage: Stage) -> None:
    expected = {}
    for queue, how, error in BAD_ENDS:
        (uid,) = stage.publish(1, how, queue)
        expected[uid] = error
    with stage.work(GRACE="0.1") as worker:
        dead: dict[str, dict[str, str]] = {}

        def collect() -> bool:
            for queue in (f"{name}.dead" for name in QUEUES):
                if stage.client.queues(queue):
                    letters = stage.client.fetch_many(queue, 10)
                    dead.update((one.headers["wakeq-origin-uid"], one.headers) for one in letters)
            return len(dead) == len(expected)

        eventually(collect, "all are dead letters")
        (last,), (last_process,) = stage.publish(1), stage.publish(1, queue="processes")
        eventually(lambda: {last, last_process} <= {*stage.noted("ended")}, "handlers run as before")
        for queue in QUEUES:
            eventually(lambda queue=queue: not any(stage.client.stats(queue)[one] for one in COUNTS), "all is settled")
        worker.signal(signal.SIGTERM)

        assert worker.end() in (0, 1)  # the threads that are left behind spin

    for uid, error in expected.items():
        assert error in dead[uid]["wakeq-error"]
        assert dead[uid]["wakeq-deliveries"] == "2"  # its retry


@pytest.mark.parametrize("queue", ["jobs", "processes", "coroutines"])
def test_process_forked_by_a_handler_processes_no_message(stage: Stage, queue: str) -> None:
    uids = stage.publish(3, "fork", queue)
    with stage.work() as worker:
        eventually(lambda: len(stage.noted("ended")) >= 3, "the handlers that fork have ended")
        uids += stage.publish(20, queue=queue)
        eventually(lambda: set(stage.noted("ended")) >= set(uids), "all is done")

        assert worker.stop() == 0

    stage.demand_clean(uids, queue)
