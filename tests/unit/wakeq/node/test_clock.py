"""NodeClock: one moment in a turn, never before the last stamp of the log, and the leader's while it follows."""

from pathlib import Path

import pytest

from tests.helpers.brokers.node_here import node_here, run
from tests.helpers.loops.manual_clock import ManualClock
from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.clock import SystemClock
from wakeq.node.clock import FOLLOWER_SAVES_MS, NodeClock
from wakeq.protocol.clock import HEARTBEAT_MS, MOVE_MS, Mark, span_on

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Kept:
    """A ClockKeeper that records the marks it is given, in order."""

    def __init__(self, clock_ms: int = 0) -> None:
        self.clock_ms = clock_ms
        self.marks: list[Mark] = []
        self.woken = 0

    def keep_clock(self, mark: Mark) -> None:
        self.marks.append(mark)

    def wake_timers(self) -> None:
        self.woken += 1


def begun(source: ManualClock, keeper: Kept, kept: Mark | None = None) -> NodeClock:
    clock = NodeClock(source, Turns(), keeper.clock_ms, kept)
    clock.begin(keeper)
    clock.lead([])
    clock.now_ms()
    return clock


def unheard(source: ManualClock, keeper: Kept) -> NodeClock:
    clock = NodeClock(source, Turns(), keeper.clock_ms)
    clock.begin(keeper)
    return clock


def beat(clock: NodeClock, source: ManualClock, seconds: float) -> int:
    for _ in range(int(seconds * 1000) // HEARTBEAT_MS):
        source.advance(HEARTBEAT_MS)
        clock.now_ms()
    return clock.now_ms()


class Turns(Runtime):
    """A runtime whose turn number the test sets."""

    turn_id = 0


def test_clock_shows_one_moment_within_a_turn() -> None:
    source, runtime = ManualClock(START_MS), Turns()
    clock = NodeClock(source, runtime, 0)

    # An odd number says that a turn is running.
    runtime.turn_id = 1
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


def test_clock_takes_the_leaders_moment_within_the_turn_that_hears_it() -> None:
    source, runtime = ManualClock(START_MS), Turns()
    clock = NodeClock(source, runtime, 0)
    runtime.turn_id = 1
    clock.now_ms()

    clock.follow(START_MS + 5_000)

    assert clock.now_ms() == START_MS + 5_000


def test_clock_begins_after_the_log_and_follows_the_leader() -> None:
    source = ManualClock(START_MS)
    clock = NodeClock(source, Turns(), START_MS + 60_000)
    begun_ms = clock.now_ms()

    clock.follow(START_MS - 5_000)
    source.advance(10)

    assert begun_ms == START_MS + 60_000
    assert clock.now_ms() == START_MS - 5_000 + 10


def test_steady_clock_saves_one_mark_per_boot() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)

    beat(clock, source, 3_600)
    begun(source, keeper, keeper.marks[-1])

    assert keeper.marks == [Mark(START_MS, START_MS, 5_000, source.boot_id)]


@pytest.mark.parametrize(
    ("by_ms", "moves"), [(MOVE_MS, False), (-MOVE_MS, False), (MOVE_MS + 1, True), (-MOVE_MS - 1, True)]
)
def test_clock_that_moved_beyond_the_bound_saves_a_mark(by_ms: int, *, moves: bool) -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)

    source.step_wall(by_ms)
    clock.now_ms()

    assert len(keeper.marks) == 1 + moves


def test_mark_of_another_boot_is_replaced_by_a_steady_clock() -> None:
    source, keeper = ManualClock(START_MS), Kept()

    begun(source, keeper, Mark(START_MS, START_MS, source.boot_ms(), b"another boot...."))

    assert [mark.boot_id for mark in keeper.marks] == [source.boot_id]


def test_catching_up_clock_saves_a_mark_every_ten_seconds() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)

    source.step_wall(HOUR_MS)
    beat(clock, source, 100)

    assert 10 <= len(keeper.marks) <= 12


def test_mark_is_saved_before_the_first_moment_after_a_pause() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)

    source.advance(12_000)
    stamp_ms = clock.stamp_ms()

    assert keeper.marks[-1].cluster_ms == stamp_ms
    assert keeper.marks[-1].boot_ms == source.boot_ms()


def test_suspension_is_noticed_at_a_beat_despite_an_equal_wall_clock_step() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)

    source.suspend(10_000)
    source.step_wall(-10_000)
    beat(clock, source, 0.5)

    assert len(keeper.marks) == 2


@pytest.mark.parametrize("by_ms", [0, HOUR_MS, -HOUR_MS])
def test_clock_lag_survives_a_restart_and_wall_clock_steps(by_ms: int) -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)
    source.advance(12_000)
    before_ms = clock.now_ms()

    source.step_wall(by_ms)
    source.advance(400)
    after_ms = begun(source, Kept(before_ms), keeper.marks[-1]).now_ms()

    assert after_ms == before_ms + 400 - MOVE_MS


@pytest.mark.parametrize("by_ms", [MOVE_MS, 0, -MOVE_MS])
@pytest.mark.parametrize("boot_id", [b"", b"another boot...."])
def test_start_is_not_ahead_of_the_clock_before(by_ms: int, boot_id: bytes) -> None:
    """The clock may have moved this far since its mark was written."""
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)
    clock.follow(START_MS + by_ms)
    before_ms = clock.now_ms()
    source.boot_id = boot_id or source.boot_id

    source.advance(700)
    after_ms = begun(source, Kept(), keeper.marks[-1]).now_ms()

    assert len(keeper.marks) == 1
    assert before_ms + 700 - 2 * MOVE_MS <= after_ms <= before_ms + 700


def test_start_is_not_before_the_last_stamp_of_the_log() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    begun(source, keeper)
    source.advance(30)

    assert begun(source, Kept(START_MS + 20), keeper.marks[-1]).now_ms() == START_MS + 20


@pytest.mark.parametrize("starts", [2, 10])
def test_successive_starts_lose_no_more_than_a_single_one(starts: int) -> None:
    source, keeper = ManualClock(START_MS), Kept()
    begun(source, keeper)

    for _ in range(starts):
        source.advance(300)
        now_ms = begun(source, keeper, keeper.marks[-1]).now_ms()

    assert now_ms == source.wall_ms() - MOVE_MS


def test_clock_lag_survives_a_boot_by_the_distance_to_the_wall_clock() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)
    source.advance(12_000)
    before_ms = clock.now_ms()
    after_boot = ManualClock(source.wall_ms() + 60_000)
    after_boot.boot_id = b"another boot...."

    assert begun(after_boot, Kept(before_ms), keeper.marks[-1]).now_ms() == before_ms + 60_000 - MOVE_MS


def test_new_leader_takes_the_latest_heard_clock_and_wakes_the_timers() -> None:
    source, keeper = ManualClock(START_MS + HOUR_MS), Kept()
    clock = unheard(source, keeper)

    clock.lead([(START_MS - 5, True), (START_MS, True), (START_MS + 2 * HOUR_MS, False)])

    assert clock.now_ms() == START_MS
    assert (clock.has_heard, keeper.woken) == (True, 1)


def test_clock_set_by_a_leader_counts_as_heard() -> None:
    source = ManualClock(START_MS)
    clock = unheard(source, Kept())
    was_heard = clock.has_heard
    clock.follow(START_MS + 700)

    clock.lead([(START_MS, True)])

    assert (was_heard, clock.now_ms()) == (False, START_MS + 700)


def test_new_leader_is_not_before_the_last_stamp_of_its_log() -> None:
    source = ManualClock(START_MS)
    clock = unheard(source, Kept())
    clock.reach(START_MS + 700)
    reached_ms = clock.now_ms()
    clock.follow(START_MS)

    clock.lead([])

    assert reached_ms == clock.now_ms() == START_MS + 700


@pytest.mark.parametrize("is_told", [False, True])
def test_returning_leader_is_not_before_its_own_stamps(*, is_told: bool) -> None:
    """An entry that this node stamped as the leader may still be in its log."""
    clock = begun(ManualClock(START_MS), Kept())
    stamp_ms = clock.stamp_ms()

    if is_told:
        clock.step_down()
    clock.follow(stamp_ms - 700)
    followed_ms = clock.now_ms()
    clock.lead([])

    assert (followed_ms, clock.now_ms()) == (stamp_ms - 700, stamp_ms)


def test_stamp_of_an_old_entry_does_not_move_the_clock() -> None:
    clock = begun(ManualClock(START_MS), Kept())

    clock.reach(START_MS - 700)

    assert clock.now_ms() == START_MS


def test_follower_saves_a_later_clock_at_most_once_a_second() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)

    for late_ms in (0, 200) * 50:
        source.advance(20)
        clock.follow(source.wall_ms() - late_ms)
        clock.now_ms()

    assert 1 < len(keeper.marks) <= 1 + 2 * 2_000 // FOLLOWER_SAVES_MS


def test_follower_saves_an_earlier_clock_at_once() -> None:
    """After a pause of the leader this node may be asked for the time by its mark at any moment."""
    source, keeper = ManualClock(START_MS), Kept()
    clock = begun(source, keeper)
    clock.follow(START_MS)
    clock.now_ms()

    source.advance(20)
    clock.follow(START_MS - 10_000)
    clock.now_ms()

    assert [mark.cluster_ms for mark in keeper.marks] == [START_MS, START_MS - 10_000]


def test_node_without_a_leader_saves_no_mark() -> None:
    source, keeper = ManualClock(START_MS), Kept()
    clock = unheard(source, keeper)

    beat(clock, source, 5)
    marks_unheard = len(keeper.marks)
    clock.follow(START_MS)
    clock.now_ms()

    assert (marks_unheard, len(keeper.marks)) == (0, 1)


def test_follower_reports_its_distance_to_the_leaders_clock() -> None:
    source = ManualClock(START_MS)
    clock = begun(source, Kept())

    clock.follow(START_MS - 5_000)

    assert clock.step_ms() == 5_000


class FineClock(ManualClock):
    """Clocks that return whole milliseconds while the true time has fractions of them."""

    rounding_ms = SystemClock.rounding_ms

    def __init__(self, wall_us: int, monotonic_us: int) -> None:
        super().__init__()
        self.passed_us, self._begun_us = 0, (wall_us, monotonic_us)

    def wall_ms(self) -> int:
        return START_MS + (self._begun_us[0] + self.passed_us) // 1000

    def monotonic_ms(self) -> int:
        return (self._begun_us[1] + self.passed_us) // 1000


@pytest.mark.parametrize("wall_us", [0, 1, 500, 999])
@pytest.mark.parametrize("monotonic_us", [0, 1, 500, 999])
@pytest.mark.parametrize("waited_us", [0, 1, 700, 999, 5_500])
def test_delay_counted_from_a_stamp_does_not_end_a_fraction_of_a_millisecond_early(
    wall_us: int, monotonic_us: int, waited_us: int
) -> None:
    source = FineClock(wall_us, monotonic_us)
    clock = begun(source, Kept())
    source.passed_us += waited_us
    due_ms = clock.stamp_ms() + span_on(clock.behind_ms(), 300)

    source.passed_us += 300_000 - 1

    assert clock.now_ms() < due_ms


def test_entries_and_delays_never_begin_before_the_true_moment(tmp_path: Path) -> None:
    async def story() -> list[int]:
        async with node_here(tmp_path / "data") as here:
            node = here.node
            node.clock.rounding_ms = HOUR_MS
            now_ms = node._time.now_ms()
            return [moment - now_ms for moment in (node.raft_log._stamp_ms(), node.queues.services.due_ms(0))]

    entry_ms, delay_ms = run(story())

    assert entry_ms >= HOUR_MS
    assert delay_ms >= HOUR_MS
