"""Identity: what a client says of itself in HELLO, as a session keeps it."""

from datetime import UTC, datetime

import pytest

from wakeq.protocol.errors import BadField
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
def test_schedule_with_neither_or_both_of_cron_and_every_is_refused(schedule: Recurring) -> None:
    with pytest.raises(BadField, match=r"schedules\[1\]: give cron or every"):
        packed(Hello(schedules=[Recurring("b", every=1), schedule]))


def test_identity_at_its_limit_is_kept_and_one_beyond_it_is_refused() -> None:
    # Each text has two bytes before it.
    texts = ["x" * 200] * (IDENTITY_BYTES_MAX // 202)

    kept = packed(Hello(tasks=texts[:-1]))

    assert len(kept) <= IDENTITY_BYTES_MAX
    with pytest.raises(BadField, match="at most 16384 are kept; name fewer"):
        packed(Hello(tasks=[*texts, "x" * 200]))
