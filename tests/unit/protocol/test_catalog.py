"""Policies: what they mean, which of them contradict each other, and how they change."""

from typing import Any

import pytest

from wakeq.protocol.catalog import (
    FIELDS,
    SECONDS_MAX,
    Catalog,
    Policies,
    Retry,
    as_dict,
    changed,
    check,
    dead_letter_of,
)
from wakeq.protocol.errors import BadField


def test_policies_are_all_shown_with_their_defaults() -> None:
    shown = as_dict(Policies(max_size=3))

    assert tuple(shown) == FIELDS
    assert shown["max_size"] == 3
    assert shown["retry"] == {"backoff": "fixed", "base": 0.0, "max": 3600.0, "jitter": 0.0}


def test_change_touches_the_named_policies_and_none_restores_a_default() -> None:
    before = Policies(max_size=3, timeout=9, wake="all")

    after = changed(before, {"max_size": None, "timeout": 5, "retry": {"base": 2}})

    assert after == Policies(timeout=5, wake="all", retry=Retry(base=2.0))
    assert changed(after, as_dict(before) | {"max_bytes": 1}) == Policies(
        max_size=3, timeout=9, wake="all", max_bytes=1
    )
    assert changed(before, {}) == before


@pytest.mark.parametrize(
    "changes", [{"colour": 1}, {"timeout": "5"}, {"wake": "none"}, {"max_size": 1.5}, {"retry": {"backoff": "x"}}]
)
def test_change_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadField):
        changed(Policies(), changes)


@pytest.mark.parametrize(
    ("policies", "why"),
    [
        ({"structure": "QA"}, "QA needs"),
        ({"structure": "QA", "priority_min": 1}, "QA needs"),
        ({"priority_min": 2, "priority_max": 1}, "above"),
        ({"priority_min": -(1 << 63) - 1}, "64 bits"),
        ({"priority_max": 1 << 63}, "64 bits"),
        ({"max_size": -1}, "max_size"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"max_message_size": -1}, "max_message_size"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": SECONDS_MAX + 1}, "timeout"),
        ({"max_deliveries": -1}, "max_deliveries"),
        ({"retry": Retry(base=-1)}, "retry"),
        ({"retry": Retry(max=float("inf"))}, "retry"),
        ({"retry": Retry(base=float("nan"))}, "retry"),
        ({"retry": Retry(jitter=1.1)}, "jitter"),
        ({"dead_letter": "q"}, "itself"),
        ({"dead_letter": "no space"}, "dead_letter"),
        ({"dead_letter": "x" * 256}, "dead_letter"),
    ],
)
def test_policies_that_contradict_each_other_are_refused(policies: dict[str, Any], why: str) -> None:
    with pytest.raises(BadField, match=why):
        check("q", Policies(**policies))


@pytest.mark.parametrize(
    "policies",
    [
        Policies(),
        Policies(structure="QA", priority_min=-1, priority_max=-1),
        Policies(priority_min=-(1 << 63), priority_max=(1 << 63) - 1),
        Policies(max_size=0, max_bytes=0, max_message_size=0, dead_letter=""),
        Policies(retry=Retry(base=SECONDS_MAX, max=SECONDS_MAX, jitter=1.0), timeout=SECONDS_MAX),
    ],
)
def test_policies_at_their_limits_are_fine(policies: Policies) -> None:
    check("q", policies)


def test_name_too_long_for_its_dead_letters_needs_another_one() -> None:
    longest = "x" * 250

    check(longest, Policies(max_deliveries=1))
    check(longest + "y", Policies())
    check(longest + "y", Policies(max_deliveries=1, dead_letter="dead"))
    with pytest.raises(BadField, match="longer than 255"):
        check(longest + "y", Policies(max_deliveries=1))


def test_dead_letters_go_to_the_named_queue_or_beside_their_own() -> None:
    assert dead_letter_of("q", Policies()) == "q.dead"
    assert dead_letter_of("", Policies()) == "default.dead"
    assert dead_letter_of("q", Policies(dead_letter="")) == ""
    assert dead_letter_of("q", Policies(dead_letter="d")) == "d"


def test_fixed_retry_waits_the_same_each_time() -> None:
    retry = Retry(base=2.5)

    assert [retry.after_ms(failures, 0.0) for failures in (1, 2, 300)] == [2_500] * 3


def test_exponential_retry_doubles_up_to_its_cap() -> None:
    retry = Retry("exponential", base=1.0, max=5.0)

    assert [retry.after_ms(failures, 0.0) for failures in (1, 2, 3, 4, 100_000)] == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_jitter_only_ever_shortens_the_wait() -> None:
    retry = Retry(base=10.0, jitter=0.5)

    assert [retry.after_ms(1, chance) for chance in (0.0, 0.5, 0.75)] == [10_000, 7_500, 6_250]


def test_queue_has_limits_as_soon_as_one_is_set() -> None:
    assert Policies(timeout=1, max_deliveries=2).unlimited
    for name in ("max_size", "max_bytes", "max_message_size", "priority_min", "priority_max"):
        assert not Policies(**{name: 0}).unlimited  # type: ignore[arg-type]


def test_catalog_knows_a_queue_until_it_is_removed() -> None:
    catalog = Catalog()

    record = catalog.put("q", 4, Policies(), 10)

    assert catalog.find("q") == record
    assert (record.id, record.created_ms) == (4, 10)
    catalog.remove("q")
    assert catalog.find("q") is None
