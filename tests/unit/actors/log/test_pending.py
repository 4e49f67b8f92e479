"""Pending: each entry leaves once, in its order, and whoever asked for it hears one outcome."""

from typing import Any

from wakeq.actors.log.pending import TAKEN_BACK, UNKNOWN, Pending
from wakeq.actors.mail import NoopTicket
from wakeq.actors.runtime import Process, Runtime
from wakeq.protocol.log.entries import Noop
from wakeq.protocol.queue.lanes import Proposal

NOOP = Noop()


class Hearing:
    """Somebody who asked, and what was answered."""

    def __init__(self) -> None:
        self.session = self
        self.heard: list[Any] = []

    def tell(self, answer: Any) -> None:
        self.heard.append(answer)


class Silent(Process):
    def on_receive(self, message: Any) -> None:
        raise AssertionError(f"{message} was told")


def entered(*askers: Hearing | None, first_index: int = 5, term: int = 3) -> Pending:
    """Return what is pending after entries of one term were proposed by these."""
    pending = Pending()
    pending.enter(first_index, term, 1_000, [Proposal(NOOP, asker) for asker in askers])
    return pending


def test_entries_are_taken_in_their_order_up_to_the_commit_index_and_only_once() -> None:
    pending = entered(None, None, None)

    parts = [pending.take(commit) for commit in (4, 6, 6, 9)]

    assert [[item.index for item in part] for part in parts] == [[], [5, 6], [], [7]]
    assert not pending.items


def test_committed_entry_is_taken_with_whoever_asked() -> None:
    asker = Hearing()

    (item,) = entered(asker).take(5)

    assert (item.index, item.term, item.at_ms, item.entry, item.reply_to) == (5, 3, 1_000, NOOP, asker)
    assert asker.heard == []


def test_dropped_entry_that_comes_back_is_taken_with_whoever_asked() -> None:
    asker = Hearing()
    pending = entered(asker)
    pending.drop_from(5)
    pending.follow(5, 4, 2_000, NOOP)
    pending.drop_from(5)
    pending.follow(5, 3, 1_000, NOOP)

    (item,) = pending.take(5)

    assert item.reply_to is asker
    assert asker.heard == []


def test_entry_of_another_term_at_the_same_index_has_nobody_who_asked() -> None:
    pending = entered(Hearing())
    pending.drop_from(5)

    pending.follow(5, 4, 2_000, NOOP)

    assert pending.items[0].reply_to is None


def test_dropped_entry_is_refused_once_an_entry_of_a_later_term_is_committed() -> None:
    asker = Hearing()
    pending = entered(asker)
    pending.drop_from(5)
    pending.follow(5, 4, 2_000, NOOP)
    assert asker.heard == []

    pending.take(5)
    pending.take(5)

    assert asker.heard == [TAKEN_BACK]


def test_dropped_entry_may_come_back_while_only_its_own_term_is_committed() -> None:
    first, second = Hearing(), Hearing()
    pending = entered(first, second)
    pending.drop_from(5)
    pending.follow(5, 3, 1_000, NOOP)

    pending.take(5)

    assert (first.heard, second.heard) == ([], [])


def test_entries_before_the_dropped_ones_stay() -> None:
    pending = entered(None, None, None)

    pending.drop_from(6)

    assert [item.index for item in pending.items] == [5]


def test_entry_that_is_given_up_is_answered_unknown_once_and_nothing_later() -> None:
    waiting, dropped, later = Hearing(), Hearing(), Hearing()
    pending = entered(waiting, dropped)
    pending.drop_from(6)
    pending.enter(6, 4, 1_000, [Proposal(NOOP, later)])

    pending.give_up(3)
    pending.give_up(3)
    items = pending.take(6)

    assert (waiting.heard, dropped.heard, later.heard) == ([UNKNOWN], [UNKNOWN], [])
    assert [item.reply_to for item in items] == [None, later]


def test_process_that_is_forgotten_hears_nothing_and_its_entries_stay() -> None:
    runtime, asker = Runtime(), Hearing()
    rebuilt = runtime.spawn(Silent)
    pending = entered(None, asker)
    pending.enter(7, 3, 1_000, [Proposal(NOOP, NoopTicket()), Proposal(NOOP, NoopTicket(rebuilt))])

    pending.forget_no_ops()

    assert [item.index for item in pending.items] == [5, 6, 7, 8]
    assert [item.reply_to for item in pending.items] == [None, asker, None, None]


def test_pending_entries_are_awaited_while_anybody_has_asked() -> None:
    pending = entered(None, Hearing())
    assert pending.is_awaited

    pending.give_up(3)

    assert not pending.is_awaited
