"""Handshakes: one who only connects ends his own connections first."""

from wakeq.net.handshakes import Handshakes

MOST = 4


def filled(handshakes: Handshakes, *sources: str) -> list[str]:
    """Let connections come from there, in this order; return which have been ended, by their source and number."""
    ended: list[str] = []
    for number, source in enumerate(sources):
        handshakes.enter(source, lambda name=f"{source}{number}": ended.append(name))  # type: ignore[misc]
    return ended


def test_oldest_handshake_of_the_busiest_source_is_ended() -> None:
    assert filled(Handshakes(MOST), "a", "b", "b", "b", "c", "b") == ["b1", "b2"]


def test_crowd_of_one_source_never_ends_the_connection_of_another() -> None:
    ended = filled(Handshakes(MOST), "node", *"x" * 100)

    assert "node0" not in ended
    assert len(ended) == 101 - MOST


def test_connection_that_left_makes_room() -> None:
    handshakes = Handshakes(MOST)
    places = [handshakes.enter("a", lambda: None) for _ in range(MOST)]

    for place in places:
        handshakes.leave(place)
        handshakes.leave(place)  # more than once does no harm

    assert len(handshakes) == 0
    assert filled(handshakes, *"abcd") == []


def test_ended_connection_can_leave() -> None:
    handshakes = Handshakes(1)
    first = handshakes.enter("a", lambda: None)
    handshakes.enter("a", lambda: None)

    handshakes.leave(first)

    assert len(handshakes) == 1
