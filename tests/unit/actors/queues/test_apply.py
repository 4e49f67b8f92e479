"""Applier: entries reach their queues in the order of the log, and what each was told is kept for a rebuild."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.helpers.loops.recorder import Recorder
from wakeq.actors.mail import LogItem, Propose
from wakeq.actors.queue.acknowledging import REFUSED_ID
from wakeq.actors.queues.apply import Applier, Hold
from wakeq.actors.queues.barrier import ANSWERED_PART, Part, PartTicket
from wakeq.actors.queues.catalog import QueueCatalog
from wakeq.actors.queues.skipped import SkippedEntries
from wakeq.actors.runtime import Process, Runtime
from wakeq.protocol.catalog import Catalog, Policies
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    Draft,
    Entry,
    Noop,
    Publish,
    Result,
    SetAside,
    Unstash,
    UnstashAction,
    UpdateQueue,
)
from wakeq.protocol.log.outcomes import WHOLE
from wakeq.protocol.queue.lanes import Tickets
from wakeq.protocol.queue.outcomes import Outcome
from wakeq.protocol.wire.slots import Slot


class FakeQueue(Process):
    """A queue that keeps what it is told, and answers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.applying = 0
        self.calls: list[list[LogItem]] = []
        self.judged: list[Part] = []
        self.code = 0
        self.steps: list[LogItem] | None = None
        self.steps_left = 0
        self.crashes = False

    def on_receive(self, message: Any) -> None:
        raise AssertionError("entries are applied by direct call")

    def apply(self, items: Sequence[LogItem]) -> None:
        if self.crashes:
            raise ZeroDivisionError("a bug")
        self.calls.append(list(items))
        if self.steps_left:
            self.steps = list(items)
        else:
            self._answer(items)

    def step(self) -> None:
        assert self.steps is not None
        if self.crashes:
            raise ZeroDivisionError("a bug")
        self.steps_left -= 1
        if not self.steps_left:
            items, self.steps = self.steps, None
            self._answer(items)

    def _answer(self, items: Sequence[LogItem]) -> None:
        for item in items:
            if item.reply_to is not None:
                item.reply_to.tell(Outcome(self.name, 1, [0]))

    def judge(self, part: Part, at_ms: int) -> int:
        if self.crashes:
            raise ZeroDivisionError("a bug")
        self.judged.append(part)
        return self.code

    @property
    def entries(self) -> list[Entry]:
        return [item.entry for call in self.calls for item in call]


class Ticket:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def tell(self, answer: Any) -> None:
        self.answers.append(answer)


class Session:
    """Somebody who has published."""

    def __init__(self, number: int) -> None:
        self.number = number


class Room:
    """An Applier with queues that do nothing but remember."""

    def __init__(self, *names: str) -> None:
        self.runtime = Runtime()
        self.log = self.runtime.spawn(Recorder)
        self.queues: dict[str, FakeQueue] = {}
        self.processes: Any = SimpleNamespace(by_name=self.queues, away=set(), term=1)
        self.skipped = SkippedEntries()
        self.set_aside: list[int] = []
        self.catalog = QueueCatalog(Catalog(), self.spawn)
        self.applier = Applier(
            self.runtime,
            self.log,
            self.catalog,
            self.processes,
            self.skipped,
            (0, 0, 0),
            lambda entry, item: self.set_aside.append(entry.index),
        )
        self.index = 0
        for name in names:
            self.apply(CreateQueue(name, Policies()))
            self.queues[name].calls.clear()
        self.applier.told.clear()

    def spawn(self, name: str) -> None:
        self.queues[name] = self.runtime.spawn(FakeQueue, name)

    def items(self, *entries: Entry, tickets: Sequence[Any] = ()) -> list[LogItem]:
        items = []
        for place, entry in enumerate(entries):
            self.index += 1
            items.append(LogItem(self.index, 1, 1_000, entry, tickets[place] if tickets else None))
        return items

    def apply(self, *entries: Entry, tickets: Sequence[Any] = ()) -> int:
        return self.applier.apply(self.items(*entries, tickets=tickets))


def publish(name: str, body: bytes = b"m") -> Publish:
    return Publish(name, [Draft(body)])


def unstash(name: str, *sources: str) -> Unstash:
    return Unstash(name, UnstashAction.PUBLISHED, [], "w", 3, "u", "i", "r", list(sources))


def ack(name: str, *publishes: Publish) -> Ack:
    return Ack(name, 1, [7], [(0, 0)], list(publishes))


@pytest.fixture
def room() -> Room:
    return Room("a", "b")


def test_queue_applies_the_entries_of_a_write_in_one_call_and_in_their_order(room: Room) -> None:
    mine = [publish("a", b"1"), ack("a"), publish("a", b"2")]

    done = room.apply(mine[0], publish("b"), *mine[1:])

    assert done == 4
    assert [[item.entry for item in call] for call in room.queues["a"].calls] == [mine]
    assert room.applier.applied == (room.index, 1, 1_000)


def test_entries_that_the_log_has_are_kept_by_index_and_others_without_their_ticket(room: Room) -> None:
    ticket = Ticket()

    room.apply(publish("a"), UpdateQueue("a", {"max_size": 3}), tickets=[None, ticket])

    index, kept = room.applier.told["a"]
    assert index == room.index - 1
    assert isinstance(kept, LogItem)
    assert (kept.index, kept.reply_to) == (room.index, None)
    assert len(ticket.answers) == 1


def test_queue_that_crashes_keeps_its_entries_whole_and_others_go_on(room: Room) -> None:
    ticket = Ticket()
    room.queues["a"].crashes = True

    done = room.apply(publish("a"), publish("b"), tickets=[ticket, None])

    (kept,) = room.applier.told["a"]
    assert done == 2
    assert isinstance(kept, LogItem)
    assert kept.reply_to is ticket
    assert ticket.answers == []
    assert len(room.queues["b"].entries) == 1


def test_entry_for_a_queue_that_is_away_is_kept_whole_and_not_applied(room: Room) -> None:
    room.processes.away.add("a")

    room.apply(publish("a"))

    assert room.queues["a"].calls == []
    assert isinstance(room.applier.told["a"][0], LogItem)


def test_publish_to_a_queue_that_does_not_exist_creates_it_first(room: Room) -> None:
    room.apply(publish("new"))

    assert [type(entry) for entry in room.queues["new"].entries] == [CreateQueue, Publish]
    assert room.catalog.catalog.queues["new"].id == room.index


def test_publish_that_must_not_create_its_queue_is_refused_and_noted(room: Room) -> None:
    ticket = Ticket()

    room.apply(Publish("new", [Draft(b""), Draft(b"")], must_exist=True), tickets=[ticket])

    assert ticket.answers == [Outcome("new", 0, [Result.NO_QUEUE] * 2)]
    assert room.applier.notes == [(room.index, WHOLE, Result.NO_QUEUE)]
    assert "new" not in room.queues


def test_entry_about_an_unknown_queue_is_answered_for_each_of_its_messages(room: Room) -> None:
    ticket = Ticket()

    room.apply(Ack("none", 1, [1, 2], [(0, 0)] * 2), tickets=[ticket])

    assert ticket.answers == [Outcome("none", 0, [Result.UNKNOWN] * 2)]


def test_set_aside_stands_behind_all_that_the_log_has_before_it(room: Room) -> None:
    items = room.items(publish("a"), SetAside("b", 1, "why"), publish("a"))

    done = room.applier.apply(items)
    before = list(room.set_aside)
    rest = room.applier.apply(items[done:])

    assert (done, before) == (1, [])
    assert (rest, room.set_aside) == (2, [1])


def test_only_no_ops_that_this_node_has_proposed_are_kept(room: Room) -> None:
    room.apply(Noop(), Noop(), tickets=[None, Ticket()])

    assert [item.index for item in room.applier.noops] == [room.index]


def test_skipped_entry_is_not_applied_but_creates_its_queue(room: Room) -> None:
    ticket = Ticket()
    room.skipped.skip(SetAside("new", room.index + 1, "why"))

    room.apply(publish("new"), tickets=[ticket])

    assert [type(entry) for entry in room.queues["new"].entries] == [CreateQueue]
    assert ticket.answers == [Outcome("new", 0, [Result.SET_ASIDE])]


def test_foreseen_entry_is_written_down_when_it_is_passed(room: Room) -> None:
    room.skipped.foresee([SetAside("a", room.index + 1, "why")])

    room.apply(publish("a"))

    assert list(room.skipped.take_unwritten()) == [room.index]
    assert room.applier.notes == [(room.index, WHOLE, Result.SET_ASIDE)]


# Entries that name several queues -------------------------------------------------------------------------------------


def test_barrier_is_judged_by_all_then_applied_by_all_and_answered_once(room: Room) -> None:
    ticket = Ticket()
    entry = ack("a", publish("b", b"1"), publish("b", b"2"))

    done = room.apply(entry, tickets=[ticket])

    assert done == 1
    assert room.queues["a"].entries == [entry]
    assert room.queues["b"].judged == [Publish("b", [Draft(b"1"), Draft(b"2")])]
    assert room.queues["b"].entries == entry.publishes
    assert ticket.answers == [Outcome("a", 1, [0], [Outcome("b", 1, [0])] * 2)]
    assert [one.reply_to for told in room.applier.told.values() for one in told if isinstance(one, LogItem)] == [
        ANSWERED_PART
    ] * 3
    assert not room.applier.held_by


def test_barrier_that_one_queue_refuses_is_applied_by_none(room: Room) -> None:
    ticket = Ticket()
    room.queues["b"].code = Result.QUEUE_FULL

    room.apply(ack("a", publish("b")), tickets=[ticket])

    assert ticket.answers == [Outcome("a", 0, [Result.QUEUE_FULL])]
    assert room.applier.notes == [(room.index, WHOLE, Result.QUEUE_FULL)]
    (refused,) = room.queues["a"].entries
    assert isinstance(refused, Ack)
    assert refused.queue_id == REFUSED_ID, "what was marked stays leased"
    assert room.queues["b"].entries == []


def test_refusal_by_the_acknowledged_queue_counts_before_a_missing_queue(room: Room) -> None:
    codes = []
    for code in (Result.UNKNOWN, 0):
        room.queues["a"].code = code
        ticket = Ticket()
        room.apply(ack("a", publish("x"), publish("y")), tickets=[ticket])
        codes += ticket.answers[0].results

    assert codes == [Result.UNKNOWN, Result.REJECTED], "one index is an id for one new queue only"
    assert "x" not in room.queues


def test_barrier_of_a_queue_that_is_gone_does_nothing(room: Room) -> None:
    ticket = Ticket()

    room.apply(ack("gone", publish("b")), tickets=[ticket])

    assert ticket.answers == [Outcome("gone", 0, [Result.UNKNOWN])]
    assert room.queues["b"].entries == []


def test_each_of_several_barriers_in_a_row_is_judged_after_the_one_before_it(room: Room) -> None:
    steps: list[str] = []
    target = room.queues["b"]
    apply, judge = target.apply, target.judge
    target.apply = lambda items: (steps.append("apply"), apply(items))[1]  # type: ignore[method-assign]
    target.judge = lambda part, at_ms: (steps.append("judge"), judge(part, at_ms))[1]  # type: ignore[method-assign]

    done = room.apply(publish("b"), ack("a", publish("b")), ack("a", publish("b")), publish("b"))

    assert done == 4
    assert steps == ["apply", "judge", "apply", "judge", "apply", "apply"]


def test_unstash_of_a_reader_is_applied_by_its_queue_and_those_that_were_read(room: Room) -> None:
    ticket, entry = Ticket(), unstash("a", "b")

    done = room.apply(entry, tickets=[ticket])

    part = Claim("b", 0, ClaimAction.PUBLISHED, "", 3, reader="r", batch=3, run="u")
    assert done == 1
    assert (room.queues["a"].entries, room.queues["b"].entries) == ([entry], [part])
    assert (room.queues["a"].judged, room.queues["b"].judged) == ([entry], [part])
    assert ticket.answers == [Outcome("a", 1, [0], [Outcome("b", 1, [0])])]


def test_unstash_of_a_reader_that_one_queue_refuses_is_applied_by_none(room: Room) -> None:
    ticket = Ticket()
    room.queues["b"].code = Result.EPOCH_EXPIRED

    room.apply(unstash("a", "b"), tickets=[ticket])

    assert ticket.answers == [Outcome("a", 0, [Result.EPOCH_EXPIRED])]
    assert room.applier.notes == [(room.index, WHOLE, Result.EPOCH_EXPIRED)]
    assert [room.queues[name].entries for name in "ab"] == [[], []]


@pytest.mark.parametrize(("code", "expected"), [(0, Result.EPOCH_EXPIRED), (Result.REPEATED, 0)])
def test_read_queue_that_is_gone_has_lapsed_and_repetition_does_without_it(
    room: Room, code: int, expected: int
) -> None:
    ticket = Ticket()
    room.queues["a"].code = code

    room.apply(unstash("a", "b", "gone"), tickets=[ticket])

    assert ticket.answers[0].results == [expected]
    assert [len(room.queues[name].entries) for name in "ab"] == ([0, 0] if expected else [1, 1])
    assert "gone" not in room.queues


@pytest.mark.parametrize("sources", [[], ["b"]])
@pytest.mark.parametrize("stashes", [[], [("x", 1)]])
def test_unstash_of_nothing_creates_its_queue_and_another_one_does_not(
    room: Room, sources: list[str], stashes: list[tuple[str, int]]
) -> None:
    ticket = Ticket()

    room.apply(replace(unstash("new", *sources), stashes=stashes), tickets=[ticket])

    assert ("new" in room.queues) == (not stashes)
    assert ticket.answers[0].results == ([Result.UNKNOWN] if stashes else [0])


def test_unstash_of_a_reader_that_is_skipped_creates_its_queue_and_marks_nothing(room: Room) -> None:
    entry = unstash("new", "b")
    room.skipped.skip(SetAside("b", room.index + 1, "a bug"))

    room.apply(entry)

    assert [type(one) for one in room.queues["new"].entries] == [CreateQueue]
    assert room.queues["b"].entries == []


@pytest.mark.parametrize("reason", ["away", "crashed"])
def test_barrier_waits_for_a_queue_that_cannot_be_asked(room: Room, reason: str) -> None:
    if reason == "away":
        room.processes.away.add("b")
    else:
        room.runtime.end(room.queues["b"], ZeroDivisionError("a bug"))

    done = room.apply(publish("a"), ack("a", publish("b")), publish("a"))

    assert done == 1
    assert room.applier.applied[0] == room.index - 2
    assert room.queues["a"].judged == []


def test_queue_that_crashes_while_it_is_asked_is_ended_over_this_entry(room: Room) -> None:
    room.queues["b"].crashes = True

    done = room.apply(ack("a", publish("b")))

    assert done == 0
    assert not room.queues["b"].alive
    assert room.queues["b"].applying == room.index
    assert room.queues["a"].entries == []


def test_part_that_crashes_its_queue_holds_everything_until_its_successor_has_applied_it(room: Room) -> None:
    ticket = Ticket()
    target = room.queues["b"]

    def crash(items: Sequence[LogItem]) -> None:
        raise ZeroDivisionError("a bug")

    target.apply = crash  # type: ignore[method-assign]
    done = room.apply(ack("a", publish("b")), publish("a"), tickets=[ticket, None])
    held, answers = set(room.applier.held_by), list(ticket.answers)
    (kept,) = room.applier.told["b"]
    assert isinstance(kept, LogItem)
    for _ in range(2):  # it may be rebuilt twice
        kept.reply_to.tell(Outcome("b", 1, [3]))

    assert done == 1
    assert (held, answers) == ({Hold.BARRIER}, [])
    assert type(kept.reply_to) is PartTicket
    assert ticket.answers == [Outcome("a", 1, [0], [Outcome("b", 1, [3])])]
    assert not room.applier.held_by


def test_skipped_entry_of_many_connections_is_proposed_again_for_each_of_them(room: Room) -> None:
    slots = [Slot(Session(number), None) for number in (1, 2)]
    room.skipped.skip(SetAside("a", room.index + 1, "why"))

    room.apply(Publish("a", [Draft(b"1"), Draft(b"2")]), tickets=[Tickets(slots)])
    room.runtime.run_until_idle()

    (mail,) = room.log.got
    assert isinstance(mail, Propose)
    assert [(one.entry.worker, one.entry.drafts) for one in mail.items] == [(1, [Draft(b"1")]), (2, [Draft(b"2")])]


# In steps -------------------------------------------------------------------------------------------------------------


def test_queue_that_applies_in_steps_gets_later_entries_behind_its_last_step(room: Room) -> None:
    first, second = Ticket(), Ticket()
    room.queues["a"].steps_left = 2

    room.apply(publish("a", b"long"), tickets=[first])
    room.apply(publish("a", b"behind"), publish("b"), tickets=[second, None])
    others = len(room.queues["b"].entries)
    room.applier.step()
    before = len(room.queues["a"].entries), len(first.answers)
    room.applier.step()

    assert (others, before) == (1, (1, 0))
    assert room.queues["a"].entries == [publish("a", b"long"), publish("a", b"behind")]
    assert (len(first.answers), len(second.answers)) == (1, 1)
    assert not room.applier.stepping
    assert room.applier.told["a"] == [room.index - 2, room.index - 1]


def test_queue_that_has_applied_in_steps_is_known_to_have_been_told_what_stood_before_them(room: Room) -> None:
    room.apply(publish("a", b"before"))
    room.queues["a"].steps_left = 1

    room.apply(publish("a", b"long"))
    room.applier.step()

    assert room.applier.told["a"] == [room.index - 1, room.index]


def test_queues_that_apply_in_steps_take_turns(room: Room) -> None:
    for name in "ab":
        room.queues[name].steps_left = 2
    room.apply(publish("a"), publish("b"))

    turns = []
    while room.applier.stepping:
        turns.append(next(iter(room.applier.stepping)))
        room.applier.step()

    assert turns == ["a", "b", "a", "b"]


def test_queue_that_crashes_in_a_step_keeps_all_of_it_for_its_successor(room: Room) -> None:
    room.queues["a"].steps_left = 2
    items = room.items(publish("a", b"long"), tickets=[Ticket()])
    behind = room.items(publish("a", b"behind"), tickets=[Ticket()])
    room.applier.apply(items)
    room.applier.apply(behind)

    room.queues["a"].crashes = True
    room.applier.step()

    assert room.applier.told["a"] == [*items, *behind]
    assert not room.applier.stepping


def test_steps_of_a_queue_that_has_crashed_otherwise_are_forgotten(room: Room) -> None:
    room.queues["a"].steps_left = 2
    items = room.items(publish("a", b"long"), publish("a", b"behind"))
    room.applier.apply(items[:1])
    room.applier.apply(items[1:])

    room.applier.forget_steps("a")

    assert room.applier.told["a"] == items
    assert not room.applier.stepping


def test_barrier_waits_for_a_queue_that_applies_in_steps(room: Room) -> None:
    room.queues["b"].steps_left = 1
    room.apply(publish("b"))
    items = room.items(ack("a", publish("b")))

    waits = room.applier.apply(items)
    room.applier.step()

    assert waits == 0
    assert room.applier.apply(items) == 1


def test_barrier_with_a_part_in_steps_is_answered_at_the_last_one(room: Room) -> None:
    ticket = Ticket()
    room.queues["b"].steps_left = 1

    room.apply(ack("a", publish("b")), publish("a"), tickets=[ticket, None])
    held, answers = set(room.applier.held_by), list(ticket.answers)
    room.applier.step()

    assert (held, answers) == ({Hold.BARRIER}, [])
    assert ticket.answers == [Outcome("a", 1, [0], [Outcome("b", 1, [0])])]
    assert not room.applier.held_by


def test_barrier_with_two_parts_in_steps_holds_everything_until_the_last_of_them() -> None:
    room, ticket = Room("a", "b", "c"), Ticket()
    room.queues["b"].steps_left, room.queues["c"].steps_left = 1, 2
    room.apply(ack("a", publish("b"), publish("c")), tickets=[ticket])

    seen = []
    while room.applier.stepping:
        seen.append((set(room.applier.held_by), len(ticket.answers)))
        room.applier.step()

    assert seen == [({Hold.BARRIER}, 0)] * 3
    assert (room.applier.held_by, len(ticket.answers)) == (set(), 1)


def test_barrier_with_a_part_in_steps_is_noted_as_given_to_its_queues(room: Room) -> None:
    room.queues["b"].steps_left = 1

    done = room.apply(ack("a", publish("b")))

    assert (done, room.applier.held_by) == (1, {Hold.BARRIER})
    assert room.applier.applied == (room.index, 1, 1_000), "or a flush would say less than it holds"


def test_entry_that_is_skipped_while_it_waits_for_a_last_step_is_not_applied(room: Room) -> None:
    ticket = Ticket()
    room.queues["a"].steps_left = 1
    room.apply(publish("a", b"long"))
    room.apply(publish("a", b"behind"), tickets=[ticket])

    room.applier.skip(SetAside("a", room.index, "why"))
    room.applier.step()

    assert room.queues["a"].entries == [publish("a", b"long")]
    assert ticket.answers == [Outcome("a", 0, [Result.SET_ASIDE])]
