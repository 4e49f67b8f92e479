"""Tests of identity.py: what a client says of itself, and that it always fits."""

import os
import socket
import sys
from datetime import UTC, datetime

import pytest

from wakeq import __version__
from wakeq.client.identity import of_client, of_worker
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import IDENTITY_CHARS_MAX, SECONDS_MAX, TASKS_MAX
from wakeq.protocol.wire.worker.identity import packed


def test_client_says_its_machine_process_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/srv/shop/mails.py", "--fast"])

    hello = of_client()

    assert (hello.host, hello.pid, hello.name) == (socket.gethostname(), os.getpid(), "mails.py")
    assert hello.versions == {"wakeq": __version__, "python": sys.version.split()[0].rstrip("+")}


@pytest.mark.parametrize(
    ("program", "name"), [("/usr/lib/shop/__main__.py", "shop"), ("", "python"), ("a\udcff.py", "a\\udcff.py")]
)
def test_program_without_a_plain_name_has_one_that_can_be_sent(
    monkeypatch: pytest.MonkeyPatch, program: str, name: str
) -> None:
    monkeypatch.setattr(sys, "argv", [program])

    hello = of_client()

    assert hello.name == name
    assert wire.decode(wire.encode_commands([hello])) == [hello]


@pytest.mark.parametrize("count", [3, TASKS_MAX, 50_000])
def test_worker_with_any_number_of_tasks_says_as_many_as_a_broker_takes(count: int) -> None:
    tasks = [f"{number:0200}" for number in range(count)]
    schedules = [wire.Recurring(task, every=60, next=datetime.now(UTC)) for task in tasks]

    hello = of_worker("n" * 300, concurrency=8, tasks=tasks, schedules=schedules)

    assert wire.decode(wire.encode_commands([hello])) == [hello]
    assert packed(hello)
    assert hello.tasks
    assert hello.tasks == tasks[: len(hello.tasks)]
    assert (hello.tasks == tasks) == (count == 3)


def test_task_with_a_name_that_a_broker_does_not_take_is_cut() -> None:
    tasks = ["t" * 300, "a\udcff"]

    hello = of_worker(None, concurrency=1, tasks=tasks, schedules=[wire.Recurring("n" * 300, every=60)])

    assert hello.tasks == ["t" * IDENTITY_CHARS_MAX, "a\\udcff"]
    assert hello.schedules == [wire.Recurring("n" * IDENTITY_CHARS_MAX, every=60)]
    assert wire.decode(wire.encode_commands([hello])) == [hello]


def test_identity_field_that_cannot_be_cut_and_does_not_fit_is_left_out() -> None:
    kept = wire.Recurring("kept", cron="0 6 * * *", zone="UTC", next=datetime(2026, 12, 24, tzinfo=UTC))
    misfits = [
        wire.Recurring("too long", cron="1," * 200),
        wire.Recurring("too seldom", every=SECONDS_MAX + 1),
        wire.Recurring("without a time zone", every=1, next=datetime(2026, 12, 24)),
        wire.Recurring("never"),
        wire.Recurring("no Unicode", cron="0 6 * * *", zone="\udcff"),
    ]

    hello = of_worker(None, concurrency=2_000_000, tasks=["a"], schedules=[kept, *misfits])

    assert (hello.concurrency, hello.tasks, hello.schedules) == (None, ["a"], [kept])
    assert wire.decode(wire.encode_commands([hello])) == [hello]
