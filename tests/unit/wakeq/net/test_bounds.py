"""Bounds without a connection: memory, pauses and deadlines, by sizes and moments that a test sets."""

import pytest

from tests.helpers.doors.noting import Clock
from wakeq.actors.sessions.door import BURST_BYTES_MAX, FRAME_S_MAX, MIB, STUCK_S_MAX, UNREAD_BYTES_MAX, Admission
from wakeq.net.bounds import BY_BACKLOG, BY_REST, BY_SESSION, WATCHED_BYTES_MIN, Bounds


class FakeDoor:
    """A door that records what its bounds decide."""

    def __init__(self, **limits: int) -> None:
        self.clock = Clock()
        self.admission = Admission(**limits)  # type: ignore[arg-type]
        self.bounds = Bounds(self.admission, self.clock)
        self.unsent_bytes = self.received_bytes = 0
        self.done: list[str] = []

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def drop(self, reason: str) -> None:
        self.done.append(f"drop: {reason}")

    def expel(self, reason: str) -> None:
        self.done.append(f"expel: {reason}")

    def give_up(self) -> None:
        self.done.append("give up")

    def write(self, size: int, *, burst: bool = True, crowded: bool = False) -> None:
        self.unsent_bytes += size
        self.bounds.wrote(self, size, burst=burst, crowded=crowded)

    def check_after(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.bounds.check(self, self.clock.now_s)


def test_reading_resumes_when_everyone_who_paused_it_has_resumed() -> None:
    door = FakeDoor()

    for by in (BY_SESSION, BY_BACKLOG, BY_REST):
        door.bounds.pause(door, by)
    for by in (BY_BACKLOG, BY_SESSION, BY_REST, BY_REST):
        door.bounds.resume(door, by)

    assert door.done == ["pause", "resume"]


def test_reading_of_a_closing_connection_does_not_pause_because_unread_input_would_destroy_the_last_answer() -> None:
    door = FakeDoor()
    door.bounds.begin_closing()

    door.write(UNREAD_BYTES_MAX + 1, crowded=True)

    assert door.done == []


def test_memory_of_a_connection_counts_once_until_it_is_released() -> None:
    door = FakeDoor()
    door.admission.held_bytes = 1_000
    door.unsent_bytes, door.received_bytes = 10, 20

    held = []
    for work_bytes in (0, WATCHED_BYTES_MIN, WATCHED_BYTES_MIN + 1):
        door.bounds.keep(door, work_bytes)
        door.bounds.hold(door)
        held.append(door.admission.held_bytes)
    door.bounds.release()

    assert held == [1_030, 1_030, 1_031 + WATCHED_BYTES_MIN]
    assert door.admission.held_bytes == 1_000


@pytest.mark.parametrize("crowded", ["no", "the door", "all connections"])
def test_unread_burst_pauses_reading_until_the_peer_has_read(crowded: str) -> None:
    door = FakeDoor(held_bytes_max=0 if crowded == "all connections" else 1 << 30)
    limit = BURST_BYTES_MAX if crowded == "no" else UNREAD_BYTES_MAX

    door.write(limit, crowded=crowded == "the door")
    before = list(door.done)
    door.write(1, crowded=crowded == "the door")
    paused = list(door.done)
    door.unsent_bytes = 0
    door.check_after(1)

    assert (before, paused, door.done) == ([], ["pause"], ["pause", "resume"])
    assert door.bounds.at_rest


def test_closing_connection_whose_last_answers_are_unread_is_still_read() -> None:
    door = FakeDoor()

    door.bounds.begin_closing()
    door.write(BURST_BYTES_MAX + 1)

    assert door.done == [], "what the peer still sends is discarded, or it could not read its last answer"


def test_peer_that_leaves_answers_unread_is_given_up() -> None:
    door = FakeDoor()

    for _ in range(UNREAD_BYTES_MAX // MIB + 2):
        door.write(MIB, burst=False)

    assert door.done == ["give up"]


def test_peer_that_reads_nothing_while_reading_is_paused_is_given_up() -> None:
    door = FakeDoor()
    door.write(BURST_BYTES_MAX + 1)

    door.check_after(STUCK_S_MAX - 1)
    before = list(door.done)
    door.check_after(1)

    assert (before, door.done) == (["pause"], ["pause", "give up"])


def test_incomplete_command_is_late_only_by_the_time_in_which_it_was_read() -> None:
    door = FakeDoor()
    door.bounds.unfinished_since_s = door.clock()

    door.check_after(FRAME_S_MAX - 1)
    door.bounds.pause(door, BY_SESSION)
    door.check_after(FRAME_S_MAX)
    door.bounds.resume(door, BY_SESSION)
    door.check_after(FRAME_S_MAX - 1)
    before = list(door.done)
    door.check_after(1)

    assert before == ["pause", "resume"]
    assert door.done[2:] == ["expel: a command was not complete after 10 s"]


@pytest.mark.parametrize(
    ("reason", "dropped"), [("", "it did not close in time"), ("the broker stops", "the broker stops")]
)
def test_connection_that_does_not_close_in_time_is_dropped(reason: str, dropped: str) -> None:
    door = FakeDoor()
    door.bounds.reason = reason
    door.bounds.unfinished_since_s = door.clock()
    door.bounds.begin_closing()

    door.check_after(FRAME_S_MAX - 1)
    before = list(door.done)
    door.check_after(1)

    assert (before, door.done) == ([], [f"drop: {dropped}"])


def test_connection_is_at_rest_when_nothing_is_unusual() -> None:
    door = FakeDoor()
    rests = [door.bounds.at_rest]

    for owner, name in (
        (door, "unsent_bytes"),
        (door, "received_bytes"),
        (door.bounds, "unfinished_since_s"),
        (door.bounds, "closing_at_s"),
        (door.bounds, "paused"),
    ):
        usual = getattr(owner, name)
        setattr(owner, name, door.clock() + 1)
        door.check_after(0)
        rests.append(door.bounds.at_rest)
        setattr(owner, name, usual)
        door.check_after(0)
        rests.append(door.bounds.at_rest)

    assert rests == [True, *[False, True] * 5]
