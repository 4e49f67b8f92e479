"""Progress: the next entry for a peer, and whether it may be sent now."""

import pytest

from wakeq.protocol.raft.progress import Mode, Progress, Window

WINDOW = Window(append_bytes=100, flying_bytes=300, flying_messages=3)


@pytest.fixture
def peer() -> Progress:
    """Return a peer of a leader whose log ends with entry 9."""
    return Progress(10, WINDOW, now_ms=0, since_round=0)


def replicating(peer: Progress) -> Progress:
    peer.accepted(9, incarnation=1)
    return peer


def test_new_peer_gets_one_message_at_a_time(peer: Progress) -> None:
    before = peer.may_send()
    peer.sent(12, 50, after_round=1)

    assert (before, peer.may_send(), peer.next) == (True, False, 10)


def test_following_peer_gets_messages_until_the_window_is_full(peer: Progress) -> None:
    replicating(peer)
    for last in (11, 12, 13):
        assert peer.may_send()
        peer.sent(last, 50, after_round=1)

    full = not peer.may_send()
    peer.accepted(11, incarnation=1)

    assert full
    assert peer.may_send()
    assert (peer.match, peer.next) == (11, 14)


def test_window_is_bounded_by_bytes_too(peer: Progress) -> None:
    replicating(peer)

    peer.sent(20, 300, after_round=1)

    assert not peer.may_send()


def test_rejection_moves_back_but_never_below_match(peer: Progress) -> None:
    peer.accepted(4, incarnation=1)
    peer.sent(12, 50, after_round=1)

    peer.rejected(8, next_index=2, incarnation=1)

    assert (peer.mode, peer.next) == (Mode.PROBE, 5)


def test_rejection_of_another_probe_is_ignored(peer: Progress) -> None:
    peer.sent(12, 50, after_round=1)

    peer.rejected(3, next_index=2, incarnation=1)

    assert (peer.next, peer.may_send()) == (10, False)


def test_rejection_below_match_in_one_incarnation_is_ignored(peer: Progress) -> None:
    replicating(peer)

    peer.rejected(9, next_index=1, incarnation=1)

    assert not peer.forgot
    assert peer.mode is Mode.REPLICATE


def test_rejection_below_match_in_a_later_incarnation_is_a_lost_disk(peer: Progress) -> None:
    replicating(peer)

    has_lost = peer.rejected(9, next_index=1, incarnation=2)

    assert has_lost
    assert peer.forgot
    assert (peer.counted_match, peer.counted_round, peer.may_send()) == (0, 0, False)


def test_lost_disk_counts_again_once_it_has_the_acknowledged_entries(peer: Progress) -> None:
    replicating(peer)
    match = peer.match
    peer.rejected(9, next_index=1, incarnation=2)

    peer.probe(kept_after=0, last_index=20)
    probed = (peer.may_send(), peer.next, peer.counted_match)
    peer.accepted(match, incarnation=3)

    assert probed == (True, match + 1, 0)
    assert (peer.forgot, peer.counted_match) == (False, match)


def test_probe_is_repeated_after_a_later_heartbeat_is_answered(peer: Progress) -> None:
    peer.sent(12, 50, after_round=4)

    peer.answered_heartbeat(4)
    before = peer.may_send()
    peer.answered_heartbeat(5)

    assert (before, peer.may_send()) == (False, True)


def test_message_seems_lost_without_progress_between_two_answers(peer: Progress) -> None:
    replicating(peer)
    peer.sent(12, 50, after_round=1)

    answers = [peer.answered_heartbeat(number) for number in (2, 3)]
    peer.accepted(12, incarnation=1)

    assert answers == [False, True]
    assert not peer.answered_heartbeat(4)


def test_probe_after_a_lost_connection_begins_behind_match(peer: Progress) -> None:
    replicating(peer)
    peer.sent(12, 300, after_round=1)

    peer.probe(kept_after=0, last_index=12)

    assert (peer.mode, peer.next, peer.may_send()) == (Mode.PROBE, 10, True)


def test_probe_below_the_kept_entries_asks_at_the_end_of_the_log(peer: Progress) -> None:
    peer.accepted(4, incarnation=1)

    peer.probe(kept_after=7, last_index=12)

    assert peer.next == 13


def test_peer_that_needs_an_image_gets_no_entries_before_it_arrives(peer: Progress) -> None:
    peer.await_image(20)
    peer.offered(stream=5, index=25)

    peer.accepted(22, incarnation=1)
    before = peer.may_send()
    peer.accepted(25, incarnation=1)

    assert not before
    assert (peer.mode, peer.next, peer.stream) == (Mode.REPLICATE, 26, 0)
