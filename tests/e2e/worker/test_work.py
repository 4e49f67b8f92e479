"""`wakeq work` against a real broker: how a command is given its message, judged and ended, and the exit statuses."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.started import Started, eventually
from wakeq import Client, Message

FOREVER = "echo $$; exec sleep 60"
STUBBORN = "trap '' TERM; echo $$; while :; do sleep 0.1; done"


@pytest.fixture
def broker(clean_broker: BrokerProcess) -> BrokerProcess:
    """One broker is enough for all of these tests."""
    return clean_broker


def work(broker: BrokerProcess, script: str, *flags: str) -> Started:
    """A worker of the queue `jobs` that runs a shell script."""
    arguments = ["-m", "wakeq", "work", "jobs", *flags, "--", "sh", "-c", script]
    return Started([sys.executable, *arguments], environment={"WAKEQ_BROKER": broker.address})


def begun(worker: Started, client: Client) -> str:
    """The first line of a command, once the broker knows that it runs."""
    line = worker.line()
    eventually(lambda: client.stats("jobs")["leased"] == 1, "a command runs")
    return line


def has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def fetched(client: Client, queue: str = "jobs", wait: float = 20) -> Message:
    message = client.fetch(queue, wait=wait)
    assert message is not None, f"nothing came from {queue}"
    return message


def test_command_reads_the_body_and_gets_the_fields_in_its_environment(broker: BrokerProcess) -> None:
    names = ("QUEUE", "UID", "DELIVERY", "FAILURES", "HEADER_X_Y", "BROKER")
    script = f"echo $(cat) {' '.join(f'$WAKEQ_{name}' for name in names)} $TRACEPARENT"
    with Client(broker.address) as client:
        uid = client.publish("jobs", "the body", headers={"x-y": "z", "traceparent": "00-1-2-01"})

        with work(broker, script) as worker:
            said = worker.line()
            eventually(lambda: client.stats("jobs")["acked"] == 1, "it is acknowledged")
            assert worker.stop() == 0

    assert said == f"the body jobs {uid} 1 0 z {broker.address} 00-1-2-01"


def test_command_may_publish(broker: BrokerProcess) -> None:
    with Client(broker.address) as client, work(broker, f"{sys.executable} -m wakeq pub done - < /dev/stdin"):
        client.publish("jobs", "onward")

        assert fetched(client, "done").text() == "onward"


def test_failed_command_is_retried_and_finally_dead_lettered(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish("jobs", "")

        with work(
            broker, "echo first >&2; echo last >&2; exit 3", "--max-retries", "2", "--retry-delay", "0"
        ) as worker:
            dead = fetched(client, "jobs.dead")
            assert worker.stop() == 0

        assert client.stats("jobs")["delivered"] == 3
        assert "last (exit status 3)" in str(dead.headers)
        assert worker.errors.count("first") == 3  # what a command says is passed on


def test_command_that_reports_bad_data_dead_letters_at_once(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish("jobs", "")

        with work(broker, "echo no image >&2; exit 65"):
            dead = fetched(client, "jobs.dead")

        assert client.stats("jobs")["delivered"] == 1
        assert "no image (exit status 65)" in str(dead.headers)


def test_command_that_asks_for_a_later_try_counts_no_failure(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish("jobs", "")

        with work(broker, "echo away >&2; exit 75", "--max-retries", "0", "--retry-delay", "100") as worker:
            eventually(lambda: client.stats("jobs")["delayed"] == 1, "it is put off")
            assert worker.stop() == 0

        (waiting,) = client.peek("jobs", state="delayed")
    assert (waiting["failures"], waiting["error"]) == (0, "away (exit status 75)")


def test_commands_run_at_the_same_time_up_to_the_concurrency(broker: BrokerProcess, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    together = f"touch {here}/$WAKEQ_UID; until [ $(ls {here} | wc -l) = 3 ]; do sleep 0.05; done; echo done"
    with Client(broker.address) as client:
        client.publish_many("jobs", ["1", "2", "3"])

        with work(broker, together, "--concurrency", "3") as worker:
            assert worker.lines(3) == ["done"] * 3


def test_command_that_runs_too_long_is_ended_and_retried(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish("jobs", "")

        with work(broker, FOREVER, "--max-run", "0.3", "--retry-delay", "0") as worker:
            pid = worker.line()
            assert worker.line() != pid
            assert has_ended(pid)


# The end ----------------------------------------------------------------------------------------------------------


def test_shutdown_lets_commands_end(broker: BrokerProcess, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"echo begun; until [ -e {gate} ]; do sleep 0.05; done"
    with Client(broker.address) as client, work(broker, script) as worker:
        client.publish("jobs", "")
        begun(worker, client)

        worker.signal(signal.SIGTERM)
        eventually(lambda: client.stats("jobs")["subscribers"] == 0, "it takes nothing more")
        gate.touch()

        assert worker.end() == 0
        assert client.stats("jobs")["acked"] == 1


def test_commands_that_outlast_the_grace_period_are_ended_and_released(broker: BrokerProcess) -> None:
    with Client(broker.address) as client, work(broker, FOREVER, "--grace", "0.2") as worker:
        client.publish("jobs", "")
        pid = begun(worker, client)

        assert worker.stop() == 1

        assert has_ended(pid)
        back = fetched(client, wait=0)
        assert (back.delivery, back.failures) == (2, 0)


def test_message_stays_leased_while_its_command_is_being_ended(broker: BrokerProcess) -> None:
    """A command that does not want to end is killed some seconds later."""
    with Client(broker.address) as client, work(broker, STUBBORN, "--grace", "0") as worker:
        client.publish("jobs", "")
        pid = begun(worker, client)
        worker.signal(signal.SIGTERM)

        back = fetched(client)

        assert has_ended(pid)
        assert (back.delivery, back.failures) == (2, 0)
        assert worker.end() == 1


def test_second_signal_ends_a_command_that_ignores_the_first(broker: BrokerProcess) -> None:
    with Client(broker.address) as client, work(broker, STUBBORN) as worker:
        client.publish("jobs", "")
        pid = begun(worker, client)
        worker.signal(signal.SIGTERM)
        eventually(lambda: client.stats("jobs")["subscribers"] == 0, "it takes nothing more")

        worker.signal(signal.SIGINT)

        assert worker.end() == 128 + signal.SIGINT
        assert has_ended(pid)
        assert fetched(client, wait=0).failures == 0


def test_command_ends_with_its_worker(broker: BrokerProcess) -> None:
    with Client(broker.address) as client, work(broker, STUBBORN, "--timeout", "5") as worker:
        client.publish("jobs", "")
        pid = begun(worker, client)

        worker.signal(signal.SIGKILL)

        eventually(lambda: has_ended(pid), "the command is gone")


def test_second_signal_is_not_reported_as_an_error(broker: BrokerProcess) -> None:
    with Client(broker.address) as client, work(broker, FOREVER) as worker:
        client.publish("jobs", "")
        begun(worker, client)
        worker.signal(signal.SIGINT)
        eventually(lambda: client.stats("jobs")["subscribers"] == 0, "it takes nothing more")

        worker.signal(signal.SIGINT)

        assert worker.end() == 128 + signal.SIGINT
        assert "Traceback" not in worker.errors
        assert "not waiting any longer" in worker.errors


# One message, or all of them --------------------------------------------------------------------------------------


def test_once_processes_one_message_or_says_that_there_was_none(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish_many("jobs", ["first", "second"])
        ended = []
        for _ in range(3):
            with work(broker, "cat; echo", "--once") as worker:
                ended.append((worker.end(), worker.lines_so_far()))

        assert ended == [(0, ["first"]), (0, ["second"]), (3, [])]
        assert client.stats("jobs")["delivered"] == 2
    assert "queue jobs has no message that is due now" in worker.errors


def test_once_on_a_missing_queue_finds_nothing(broker: BrokerProcess) -> None:
    with work(broker, "cat", "--once") as worker:
        assert worker.end() == 3


def test_drain_ends_when_everything_is_done_including_retries(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish_many("jobs", [str(number) for number in range(10)])

        with work(
            broker, "echo $(cat); [ $WAKEQ_DELIVERY = 2 ]", "--drain", "--concurrency", "3", "--retry-delay", "0"
        ) as worker:
            assert worker.end() == 0

        assert sorted(worker.lines_so_far()) == sorted([str(number) for number in range(10)] * 2)
        assert (client.stats("jobs")["size"], client.stats("jobs")["leased"]) == (0, 0)


def test_drain_does_not_wait_for_delayed_messages(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish("jobs", "now")
        client.publish("jobs", "later", delay=1000)

        with work(broker, "cat; echo", "--drain") as worker:
            assert (worker.end(), worker.lines_so_far()) == (0, ["now"])


def test_signal_stops_a_drain(broker: BrokerProcess) -> None:
    with Client(broker.address) as client:
        client.publish("jobs", "")
        with work(broker, FOREVER, "--drain", "--grace", "0.2") as worker:
            begun(worker, client)

            assert worker.stop() == 1


def test_command_worker_reconnects_to_its_broker(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Client(broker.address) as client, work(broker, "cat; echo") as worker:
        client.publish("jobs", "before")
        assert worker.line() == "before"
        eventually(lambda: client.stats("jobs")["acked"] == 1, "it is acknowledged")
        broker.extra_args = ("--worker-port", str(broker.worker_address[1]))

        broker.restart()
        client.publish("jobs", "after")

        assert worker.line() == "after"
        assert worker.stop() == os.EX_OK
