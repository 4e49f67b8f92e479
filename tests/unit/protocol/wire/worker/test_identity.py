"""Identity: what a client says of itself in HELLO, as a session keeps it."""

from datetime import UTC, datetime

import pytest

from wakeq.protocol.wire.worker.codec import Hello, Recurring
from wakeq.protocol.wire.worker.identity import IDENTITY_BYTES_MAX, NOT_SAID, facts_of, packed

NEXT = datetime(2026, 12, 24, 18, tzinfo=UTC)


def test_everything_that_a_client_says_is_kept_and_its_token_is_not() -> None:
    hello = Hello(
        session="s",
        token="secret",
        host="db1",
        pid=71,
        name="mails",
        versions={"python": "3.13.1"},
        concurrency=8,
        tasks=["emails"],
        schedules=[Recurring("emails", cron="0 6 * * *", zone="UTC", next=NEXT), Recurring("clean", every=60)],
    )

    identity = packed(hello)

    assert b"secret" not in identity
    assert facts_of(identity) == {
        "host": "db1",
        "pid": 71,
        "name": "mails",
        "versions": {"python": "3.13.1"},
        "concurrency": 8,
        "tasks": ["emails"],
        "schedules": [
            {"name": "emails", "cron": "0 6 * * *", "zone": "UTC", "next": NEXT},
            {"name": "clean", "every": 60},
        ],
    }


def test_client_that_says_nothing_costs_nothing_and_has_no_facts() -> None:
    assert packed(Hello(session="s")) == b""
    assert facts_of(b"") == NOT_SAID


@pytest.mark.parametrize("schedule", [Recurring("a"), Recurring("a", cron="* * * * *", every=5)])
def test_schedules_with_neither_or_both_of_cron_and_every_are_left_out(schedule: Recurring) -> None:
    hello = Hello(host="a", schedules=[Recurring("b", every=1), schedule])

    assert facts_of(packed(hello)) == NOT_SAID | {"host": "a"}
    assert packed(Hello(schedules=[schedule])) == b""


def test_identity_at_its_limit_is_kept_and_of_a_longer_one_the_last_fields_are_left_out() -> None:
    texts = ["x" * 200] * 80
    room = IDENTITY_BYTES_MAX - len(packed(Hello(tasks=[*texts, "x" * 50])))
    tasks = [*texts, "x" * (50 + room)]

    kept = packed(Hello(tasks=tasks))

    assert len(kept) == IDENTITY_BYTES_MAX
    assert facts_of(kept)["tasks"] == tasks
    assert facts_of(packed(Hello(host="a", tasks=tasks))) == NOT_SAID | {"host": "a"}
    assert facts_of(packed(Hello(tasks=tasks, schedules=[Recurring("b", every=1)]))) == NOT_SAID | {"tasks": tasks}
