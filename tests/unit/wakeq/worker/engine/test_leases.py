"""Tests of leases.py: when held messages are checked."""

from typing import Any

import pytest

from wakeq.client.message import Received
from wakeq.worker import Worker
from wakeq.worker.engine.leases import Job, Leases


def jobs(count: int, *, timeout: int = 60, max_run: float = 3600) -> list[Job]:
    def handler() -> None: ...

    task: Any = Worker().task("q", timeout=timeout, max_run=max_run)(handler)
    return [Job(task, Received(queue="q", uid=f"u{place}", body=b"", lease="1", delivery=1)) for place in range(count)]


def test_first_check_comes_before_the_shortest_lease_ends() -> None:
    leases = Leases()

    leases.add(jobs(3), 100.0)

    assert leases.next_check_s is not None
    assert 103.0 < leases.next_check_s < 104.0
    assert leases.due(leases.next_check_s - 0.01) == []


def test_extended_lease_is_checked_when_a_third_is_left() -> None:
    leases = Leases()
    leases.add(jobs(2, timeout=60), 0.0)
    (batch,) = leases.due(4.0)

    batch.extended(4.0)
    leases.schedule(batch, 4.0)

    assert leases.next_check_s == pytest.approx(44.0)


def test_handler_timeout_is_checked_at_its_deadline() -> None:
    leases = Leases()
    held = jobs(2, max_run=2)
    leases.add(held, 0.0)
    held[0].started_s, held[1].started_s = 0.5, 1.5

    (batch,) = leases.due(2.0)
    leases.schedule(batch, 2.0)

    assert batch.overdue(2.5) == [held[0]]
    assert leases.next_check_s == 2.5


def test_waiting_job_is_not_overdue() -> None:
    leases = Leases()
    leases.add(jobs(1, max_run=1), 0.0)

    (batch,) = leases.due(1.0)

    assert batch.overdue(100.0) == []


def test_message_is_released_once() -> None:
    leases = Leases()
    held = jobs(2)
    leases.add(held, 0.0)

    assert leases.release(held[0])
    assert not leases.release(held[0])
    assert len(leases) == 1
    assert list(leases) == [held[1]]


def test_batch_without_held_messages_is_dropped() -> None:
    leases = Leases()
    held = jobs(2)
    leases.add(held, 0.0)
    for job in held:
        leases.release(job)

    assert leases.due(10.0) == []
    assert leases.next_check_s is None
