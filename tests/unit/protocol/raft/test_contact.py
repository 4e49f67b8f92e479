"""Contact: the last moment at which a majority is known to have followed a leader."""

from wakeq.protocol.raft.contact import Contact


def test_contact_counts_from_the_begin_of_the_round() -> None:
    contact = Contact(0)
    number = contact.begin(100)

    contact.answered(number, 120)

    assert contact.is_within(50, 149)
    assert not contact.is_within(50, 150)


def test_round_without_an_answer_is_no_contact() -> None:
    contact = Contact(0)
    contact.begin(0)

    assert not contact.is_within(1000, 1)


def test_later_round_counts_for_the_earlier_ones() -> None:
    contact = Contact(0)
    for now_ms in (10, 20, 30):
        contact.begin(now_ms)

    news = [contact.answered(number, 40) for number in (2, 1, 2)]

    assert news == [True, False, False]
    assert (contact.heard_ms, contact.open_rounds) == (20, 1)


def test_round_trip_lasts_until_a_majority_has_answered() -> None:
    contact = Contact(0)
    before = contact.took_ms
    for now_ms in (100, 200):
        contact.begin(now_ms)

    contact.answered(2, 640)

    assert (before, contact.took_ms) == (None, 440)
