"""`wakeq run` against a real broker: a worker from code, and with --reload always from the newest code."""

import json
import os
import signal
import sys
from pathlib import Path

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.started import Started, eventually
from wakeq import Client

SHOP = """
import os, time
from pathlib import Path
from wakeq import Worker

worker = Worker()

@worker.task("jobs")
def job(name: str) -> None:
    print("{word} " + name, flush=True)
    while name == "slow" and not Path("gate").exists():
        time.sleep(0.02)
    print("{word} " + name + " done", flush=True)
"""


COPIES = """
import logging
from wakeq import Reject, Worker

worker = Worker()

@worker.task("copies", mode="process")
def copy(name: str) -> None:
    logging.getLogger("copies").info("copies %s", name)
    raise Reject("no paper")
"""


def run(broker: BrokerProcess, folder: Path, *flags: str) -> Started:
    arguments = ["-m", "wakeq", "--broker", broker.address, "run", "shop:worker", *flags]
    return Started([sys.executable, *arguments], cwd=folder)


def write(folder: Path, text: str, *, moment: float | None = None) -> None:
    """Put the module there in one step, so that nobody imports half of it; as if written at that moment, or now."""
    (folder / "shop.new").write_text(text)
    if moment is not None:
        os.utime(folder / "shop.new", (moment, moment))
    (folder / "shop.new").rename(folder / "shop.py")


def test_worker_from_code_runs_until_a_signal(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, SHOP.format(word="one"))
    with Client(broker.address) as client, run(broker, tmp_path, "--concurrency", "1") as worker:
        client.publish("jobs", {"name": "tea"})
        assert (worker.line(), worker.line()) == ("one tea", "one tea done")

        assert worker.stop() == 0


def test_package_runs_the_tasks_of_all_its_modules_and_says_so(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "base.py").write_text("from wakeq import Worker\nworker = Worker()\n")
    for name in ("bills", "mails"):
        # In one piece: two threads may print at once.
        job = f"def job() -> None: print('{name}\\n', end='', flush=True)\n"
        text = f"from shop.base import worker\n@worker.task('{name}')\n{job}"
        (tmp_path / "shop" / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "wakeq", "--broker", broker.address, "run", "shop"]
    with Client(broker.address) as client, Started(command, cwd=tmp_path) as worker:
        client.publish("bills", {})
        client.publish("mails", {})

        assert worker.lines(2) == ["bills", "mails"]
        assert worker.stop() == 0
        assert f"ready: serving bills, mails, 8 threads at once, from {broker.address}" in worker.errors


def test_concurrency_follows_the_command_line(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, SHOP.format(word="one"))
    with Client(broker.address) as client:
        client.publish_many("jobs", [{"name": "slow"}, {"name": "tea"}])

        with run(broker, tmp_path, "--concurrency", "1") as worker:
            assert worker.line() == "one slow"
            (tmp_path / "gate").touch()
            assert (worker.line(), worker.line()) == ("one slow done", "one tea")


def test_drain_ends_when_its_queues_are_empty(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, SHOP.format(word="one"))
    with Client(broker.address) as client:
        client.publish_many("jobs", [{"name": "tea"}, {"name": "milk"}])

        with run(broker, tmp_path, "--concurrency", "1", "--drain") as worker:
            assert worker.end() == 0

        assert worker.lines_so_far() == ["one tea", "one tea done", "one milk", "one milk done"]
        assert client.stats("jobs")["acked"] == 2


def test_log_settings_reach_handlers_in_processes(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, COPIES)
    with Client(broker.address) as client:
        uid = client.publish("copies", {"name": "tea"})

        with run(broker, tmp_path, "--drain", "--log-json", "--log-level", "info") as worker:
            assert worker.end() == 0

    told = [json.loads(line) for line in worker.errors.splitlines()]
    of_the_message = [(one["level"], one["logger"], one["delivery"]) for one in told if one["uid"] == uid]
    assert of_the_message == [("info", "copies", 1), ("warning", "wakeq.worker", 1)]


def test_code_change_restarts_the_worker_after_its_handlers_ended(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, SHOP.format(word="one"))
    with Client(broker.address) as client, run(broker, tmp_path, "--reload") as worker:
        client.publish("jobs", {"name": "slow"})
        assert worker.line() == "one slow"

        write(tmp_path, SHOP.format(word="two"))
        eventually(lambda: client.stats("jobs")["subscribers"] == 0, "the old worker takes nothing more")
        client.publish("jobs", {"name": "tea"})
        (tmp_path / "gate").touch()

        assert (worker.line(), worker.line(), worker.line()) == ("one slow done", "two tea", "two tea done")
        assert worker.stop() == 0


def test_code_change_of_equal_size_within_a_second_restarts_the_worker(broker: BrokerProcess, tmp_path: Path) -> None:
    """Python recognises compiled code by second and size, and would take the older code for the newer."""
    write(tmp_path, SHOP.format(word="one"), moment=1_700_000_000.1)
    with Client(broker.address) as client, run(broker, tmp_path, "--reload") as worker:
        client.publish("jobs", {"name": "tea"})
        assert (worker.line(), worker.line()) == ("one tea", "one tea done")

        write(tmp_path, SHOP.format(word="two"), moment=1_700_000_000.9)
        eventually(lambda: client.stats("jobs")["subscribers"] == 0, "the old worker takes nothing more")
        client.publish("jobs", {"name": "tea"})

        assert (worker.line(), worker.line()) == ("two tea", "two tea done")
        assert worker.stop() == 0


def test_broken_code_is_waited_for(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, "this is no Python")
    with Client(broker.address) as client, run(broker, tmp_path, "--reload") as worker:
        eventually(lambda: "it starts again when a file changes" in worker.errors, "it says what it waits for")

        write(tmp_path, SHOP.format(word="whole"))
        client.publish("jobs", {"name": "tea"})

        assert worker.line() == "whole tea"
        assert "SyntaxError" in worker.errors


def test_worker_ends_with_its_reloader(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, SHOP.format(word="tea"))
    with Client(broker.address) as client, run(broker, tmp_path, "--reload") as reloader:
        client.publish("jobs", {"name": "one"})
        reloader.line()
        (child,) = Path(f"/proc/{reloader.pid}/task/{reloader.pid}/children").read_text().split()

        reloader.signal(signal.SIGKILL)

        eventually(lambda: has_ended(child), "its worker has ended with it")


def has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_signal_ends_the_reloader_while_it_waits_for_a_change(broker: BrokerProcess, tmp_path: Path) -> None:
    write(tmp_path, "this is no Python")
    with run(broker, tmp_path, "--reload") as worker:
        eventually(lambda: "it starts again when a file changes" in worker.errors, "it says what it waits for")

        worker.signal(signal.SIGINT)

        assert worker.end() == 128 + signal.SIGINT
