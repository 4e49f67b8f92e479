"""Proves by which conditions an operator picks messages (where.py)."""

import pytest

from wakeq.protocol import errors
from wakeq.protocol.queue.where import Candidate, fits, parse_condition

READY = Candidate(
    uid="0000003_00000001",
    state="ready",
    body=b'{"to":"ada"}',
    headers={"tenant": "acme"},
    priority=5,
    age_s=60.0,
    deliveries=2,
    failures=1,
    error="timeout of the mail server",
)
LETTER = READY._replace(
    headers={"wakeq-origin": "mails", "wakeq-reason": "rejected", "wakeq-error": "no such address"}, error=""
)


@pytest.mark.parametrize(
    "condition",
    [
        "priority<6",
        "age>=60",
        "deliveries=2",
        "failures!=0",
        "size=12",
        "state=ready",
        "uid~_0",
        "body~ada",
        "text~ADA",
        "text~Acme",
        "text~mail server",
        "text!=nowhere",
        "text~0000003_",
        "error~timeout",
        "header.tenant=acme",
        "header.missing=",
        "origin=",
        "reason!=nack",
    ],
)
def test_condition_holds_for_a_row_it_describes(condition: str) -> None:
    assert fits(READY, [parse_condition(condition)])


def test_message_fits_only_if_all_conditions_hold() -> None:
    assert not fits(READY, [parse_condition("priority=5"), parse_condition("header.tenant=other")])


@pytest.mark.parametrize("condition", ["origin=mails", "reason=rejected", "error~such", "header.wakeq-error~such"])
def test_dead_letters_are_selected_by_their_reason(condition: str) -> None:
    assert fits(LETTER, [parse_condition(condition)])


def test_dead_letter_that_failed_again_is_picked_by_its_last_error() -> None:
    again = LETTER._replace(error="still none")

    assert fits(again, [parse_condition("error=still none")])
    assert not fits(again, [parse_condition("error~such")])


@pytest.mark.parametrize("text", ["priority", "bogus=1", "priority~5", "priority=high", "state<5", "=5", ""])
def test_malformed_condition_is_refused(text: str) -> None:
    with pytest.raises(errors.BadField):
        parse_condition(text)


@pytest.mark.parametrize("text", ["grüße", "GRÜSSE", "Grüße", "Straße", "body"])
def test_text_is_found_in_a_body_that_is_no_text_whatever_its_case(text: str) -> None:
    found = READY._replace(body=b"\xff\x00" + "Grüße, GRÜSSE, Straße, BODY".encode())

    assert fits(found, [parse_condition(f"text~{text}")])
    assert not fits(found, [parse_condition("text~Gruß")])


def test_text_is_compared_by_what_it_contains_only() -> None:
    with pytest.raises(errors.BadField, match="contains"):
        parse_condition("text=ada")
