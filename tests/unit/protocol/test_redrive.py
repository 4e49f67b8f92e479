"""Tests of redrive.py: origins by their headers, without a queue."""

import pytest

from wakeq.protocol.queue import dead_letters
from wakeq.protocol.redrive import ORIGIN, Origins, redriven_headers

DEAD = "emails.dead"


def goes_to(origins: Origins, headers: dict[str, str]) -> str | None:
    origin = origins.origin_of(headers)
    return origin if origin is not None and origins.allows(origin) else None


def test_origin_is_known_by_the_name_of_the_dead_letter_queue() -> None:
    origins = Origins(DEAD, anywhere=False)

    assert not origins.is_unknown("emails")
    assert goes_to(origins, {ORIGIN: "emails"}) == "emails"
    assert not origins.strangers


@pytest.mark.parametrize("headers", [{}, {ORIGIN: DEAD}, {ORIGIN: "no name"}], ids=["missing", "itself", "bad name"])
def test_letter_without_another_queue_as_its_origin_stays(headers: dict[str, str]) -> None:
    assert goes_to(Origins(DEAD, anywhere=True), headers) is None


def test_origin_is_asked_for_its_dead_letter_queue_once() -> None:
    origins = Origins(DEAD, anywhere=False)
    before = [origins.is_unknown(name) for name in ("orders", "forged", "deleted")]

    origins.learn("orders", DEAD)
    origins.learn("forged", "forged.dead")
    origins.learn("deleted", None)

    after = [origins.is_unknown(name) for name in ("orders", "forged", "deleted")]
    assert (before, after) == ([True] * 3, [False] * 3)
    assert [goes_to(origins, {ORIGIN: name}) for name in ("orders", "forged", "deleted")] == ["orders", None, None]
    assert origins.strangers == {"forged", "deleted"}


def test_any_origin_is_allowed_on_request() -> None:
    origins = Origins(DEAD, anywhere=True)

    assert not origins.is_unknown("forged")
    assert goes_to(origins, {ORIGIN: "forged"}) == "forged"


@pytest.mark.parametrize(
    ("before", "after"), [(None, "1"), ("1", "2"), ("9", "10"), ("many", "1"), ("-1", "1"), ("²", "1")]
)
def test_redriven_headers_are_the_publishers_own_and_a_count(before: str | None, after: str) -> None:
    headers = {"trace": "x", ORIGIN: "emails", dead_letters.REASON: "rejected"}
    if before is not None:
        headers["wakeq-redriven"] = before

    assert redriven_headers(headers) == {"trace": "x", "wakeq-redriven": after}
