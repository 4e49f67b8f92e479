"""A Worker as a program: real processes, a real broker, signals and kills; no message is lost or left leased."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.process import BrokerProcess
from wakeq import Client
from wakeq.client.admin import AdminClient

PATIENCE_S = 30.0

PROGRAM = """
import asyncio, ctypes, logging, os, sys, time
from wakeq import Reject, Retry, Snooze, Worker, current

logging.basicConfig(level=logging.INFO)
worker = Worker(concurrency=2, grace=float(os.environ.get("GRACE", 25)))

def tell(*what):
    print(" ".join(map(str, what)) + "\\n", end="", flush=True)  # one write: threads must not mix their lines

@worker.task("sleeps", timeout=60)
def sleep(seconds: float) -> None:
    tell("began", current().uid, current().delivery)
    time.sleep(seconds)
    tell("ended", current().uid)

@worker.task("spins", timeout=5)
def spin(seconds: float) -> None:
    tell("began", current().uid, current().delivery)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass

@worker.task("waits")
async def wait(seconds: float) -> None:
    tell("began", current().uid, current().delivery)
    await asyncio.sleep(seconds)

@worker.task("dies", mode="process", retry=Retry(max=1, delay=0, jitter=0))
def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "hang":
        tell(os.getpid())
        time.sleep(3600)
    if how == "hog":
        tell(os.getpid())
        ctypes.PyDLL(None).sleep(3600)  # no other thread of this process has its turn

@worker.task("ends", retry=Retry(max=2, delay=0, jitter=0))
def end(how: str) -> None:
    tell(how, current().delivery)
    match how:
        case "fail":
            raise ValueError("always")
        case "snooze" if current().delivery == 1:
            raise Snooze(0)
        case "reject":
            raise Reject("never")
        case "then":
            current().then(end, how="done")
            current().then("audit", {"uid": current().uid})

if __name__ == "__main__":
    if "IN_BACKGROUND" in os.environ:
        worker.start()
        sys.stdin.readline()
    else:
        worker.run()
"""


@pytest.fixture
def broker(clean_broker: BrokerProcess) -> BrokerProcess:
    """One broker is enough for all of these tests."""
    return clean_broker


class Program:
    """A worker in a process of its own, and the lines that it prints."""

    def __init__(self, file: Path, broker: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(file)],
            env={**os.environ, "WAKEQ_BROKER": broker, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self._stdout = self.process.stdout

    def line(self) -> list[str]:
        """The next line; the broken pipe of a program that ended is an empty one."""
        return self._stdout.readline().split()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


StartProgram = Callable[..., Program]


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[StartProgram]:
    """Return a function that starts the program against a broker."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    programs: list[Program] = []

    def start(address: str, **environment: str) -> Program:
        programs.append(Program(file, address, **environment))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.communicate()


def left_in(client: Client, queue: str) -> int:
    """How many messages the queue has, also those that somebody holds."""
    stats = client.stats(queue)
    return int(stats["ready"] + stats["delayed"] + stats["leased"])


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Wait for a condition with a deadline."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)
    return found


def test_outcomes_of_handlers_reach_the_broker(broker: BrokerProcess, start_program: StartProgram) -> None:
    with Client(broker.address) as client:
        for how in ("return", "fail", "snooze", "reject", "then"):
            client.publish("ends", {"how": how})
        client.publish("ends", {"what": "unknown"})
        client.publish("dies", {"how": "exit"})
        client.publish("dies", {"how": "return"})
        program = start_program(broker.address)

        until("all came to an end", lambda: not left_in(client, "ends") + left_in(client, "dies"))
        until("the dead letters are there", lambda: [one for one in client.queues("ends.dead") if one["size"] == 3])
        letters = [one.headers for one in client.fetch_many("ends.dead", 10, wait=PATIENCE_S)]
        (died,) = client.fetch_many("dies.dead", 10, wait=PATIENCE_S)
        (audit,) = client.fetch_many("audit", 10, wait=PATIENCE_S)

    assert sorted((one["wakeq-error"].partition(":")[0], one["wakeq-reason"]) for one in letters) == [
        ("never", "rejected"),
        ("still failing after 2 retries", "exhausted"),
        ("the body does not fit end(how", "rejected"),
    ]
    assert died.headers["wakeq-error"] == "still failing after 1 retry: its process ended with exit code 3"
    assert audit.json()["uid"]
    assert program.end() == 0


def test_operator_sees_who_the_worker_is_and_since_when_it_handles_what(
    broker: BrokerProcess, start_program: StartProgram
) -> None:
    with Client(broker.address) as client, AdminClient("{}:{}".format(*broker.http_address)) as operator:
        uid = client.publish("sleeps", {"seconds": 3600})
        program = start_program(broker.address, GRACE="0.2")
        assert program.line() == ["began", uid, "1"]

        workers = operator.call("GET", "/workers")["workers"]

    (mine,) = [worker for worker in workers if worker["pid"] == program.process.pid]
    (busy,) = mine["busy"]
    assert (mine["host"], mine["name"], mine["concurrency"]) == (socket.gethostname(), "program.py", 2)
    assert mine["tasks"] == ["sleeps", "spins", "waits", "dies", "ends"]
    assert (busy["queue"], busy["uid"]) == ("sleeps", uid)
    begun, since, until = map(datetime.fromisoformat, (mine["since"], busy["since"], busy["until"]))
    assert begun <= since < until


def test_shutdown_finishes_running_handlers_and_releases_the_rest(
    broker: BrokerProcess, start_program: StartProgram
) -> None:
    with Client(broker.address) as client:
        client.publish_many("sleeps", [{"seconds": 1}] * 6)
        program = start_program(broker.address)
        assert [program.line()[0], program.line()[0]] == ["began", "began"]

        status = program.end()

        stats = client.stats("sleeps")
    assert status == 0
    assert (stats["leased"], stats["delayed"]) == (0, 0)
    assert stats["acked"] + stats["ready"] == 6
    assert stats["acked"] >= 2


@pytest.mark.parametrize("queue", ["sleeps", "waits"])
def test_handlers_that_outlast_the_grace_period_are_released_without_a_failure(
    broker: BrokerProcess, start_program: StartProgram, queue: str
) -> None:
    with Client(broker.address) as client:
        uid = client.publish(queue, {"seconds": 3600})
        program = start_program(broker.address, GRACE="0.2")
        assert program.line()[0] == "began"

        status = program.end()

        message = client.fetch(queue)
    assert status == 1
    assert message is not None
    assert (message.uid, message.delivery, message.failures) == (uid, 2, 0)


@pytest.mark.parametrize(("second", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_second_signal_ends_the_worker_with_its_own_status(
    broker: BrokerProcess, start_program: StartProgram, second: signal.Signals, expected: int
) -> None:
    with Client(broker.address) as client:
        client.publish("sleeps", {"seconds": 3600})
        program = start_program(broker.address)
        assert program.line()[0] == "began"
        until("its other place sleeps", lambda: client.stats("sleeps")["sleepers"] == 1)
        program.process.send_signal(signal.SIGTERM)
        until("the first signal was heard", lambda: client.stats("sleeps")["sleepers"] == 0)

        status = program.end(second)

        assert status == expected
        assert client.fetch("sleeps", wait=PATIENCE_S) is not None


def test_worker_without_a_broker_says_so_and_ends(start_program: StartProgram) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        program = start_program(f"127.0.0.1:{taken.getsockname()[1]}")

        status = program.process.wait(PATIENCE_S)

    assert status == 69
    assert program.error().startswith("wakeq: no broker answers at 127.0.0.1:")


def test_handler_that_hogs_the_processor_keeps_its_lease(broker: BrokerProcess, start_program: StartProgram) -> None:
    with Client(broker.address) as client:
        client.publish("spins", {"seconds": 6.5}, timeout=5)
        program = start_program(broker.address)
        assert program.line()[2:] == ["1"]

        until("it was acknowledged", lambda: client.stats("spins")["acked"])

        stats = client.stats("spins")
    assert (stats["delivered"], stats["released"]) == (1, 0)
    assert program.end() == 0


def test_worker_receives_messages_after_its_broker_was_killed(
    start_broker: Callable[..., BrokerProcess], start_program: StartProgram
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    broker = start_broker("--worker-port", port)
    program = start_program(f"127.0.0.1:{port}")
    with Client(f"127.0.0.1:{port}") as client:
        client.create_queue("sleeps")
        until("it sleeps", lambda: client.stats("sleeps")["sleepers"])

    broker.restart()

    with Client(f"127.0.0.1:{port}") as client:
        until("it sleeps again", lambda: client.stats("sleeps")["sleepers"])
        client.publish("sleeps", {"seconds": 0})
        assert program.line()[0] == "began"
        assert program.line()[0] == "ended"
    assert program.end() == 0


def test_killed_worker_loses_nothing(broker: BrokerProcess, start_program: StartProgram) -> None:
    with Client(broker.address) as client:
        uid = client.publish("sleeps", {"seconds": 3600}, timeout=5)
        program = start_program(broker.address)
        assert program.line()[0] == "began"

        program.end(signal.SIGKILL)

        message = client.fetch("sleeps", wait=PATIENCE_S)
    assert message is not None
    assert (message.uid, message.delivery) == (uid, 2)


@pytest.mark.parametrize("how", ["hang", "hog"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_process_ends_with_its_worker(
    broker: BrokerProcess, start_program: StartProgram, number: signal.Signals, how: str
) -> None:
    with Client(broker.address) as client:
        client.publish("dies", {"how": how})
        program = start_program(broker.address, GRACE="0.1")
        (pid,) = program.line()

        program.end(number)

    until("its process is gone", lambda: not Path(f"/proc/{pid}").exists())


def test_program_may_end_without_stopping_its_worker(broker: BrokerProcess, start_program: StartProgram) -> None:
    with Client(broker.address) as client:
        client.publish("dies", {"how": "return"})
        client.publish("dies", {"how": "hang"})
        program = start_program(broker.address, IN_BACKGROUND="yes")
        (pid,) = program.line()
        until("the other process is idle", lambda: client.stats("dies")["acked"])

        assert program.process.stdin is not None
        program.process.stdin.write("end\n")
        program.process.stdin.flush()

        assert program.process.wait(PATIENCE_S) == 0
    until("its process is gone", lambda: not Path(f"/proc/{pid}").exists())
