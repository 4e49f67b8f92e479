"""The clock of a node: one moment in a turn, never behind what the log knows, and the leader's while it follows."""

from tests.helpers.manual_clock import ManualClock
from wakeq.actors.runtime import Runtime
from wakeq.node_clock import NodeClock

START_MS = 1_700_000_000_000


class Turns(Runtime):
    """A runtime whose turns a test counts."""

    turn_id = 0


def test_within_one_turn_it_is_one_moment() -> None:
    source, runtime = ManualClock(START_MS), Turns()
    clock = NodeClock(source, runtime, 0)

    runtime.turn_id = 1  # odd: a turn is under way
    first = clock.now_ms()
    source.advance(30)
    same = clock.now_ms()
    runtime.turn_id = 3
    next_turn = clock.now_ms()
    runtime.turn_id = 4
    source.advance(5)
    between = [clock.now_ms()]
    source.advance(5)
    between.append(clock.now_ms())

    assert (same - first, next_turn - first) == (0, 30)
    assert [moment - first for moment in between] == [35, 40]


def test_it_begins_behind_the_last_moment_of_the_log_and_follows_the_leader() -> None:
    source = ManualClock(START_MS)
    clock = NodeClock(source, Turns(), START_MS + 60_000)
    begun_ms = clock.now_ms()

    clock.follow(START_MS - 5_000)
    source.advance(10)

    assert begun_ms == START_MS + 60_000
    assert clock.now_ms() == START_MS - 5_000 + 10
