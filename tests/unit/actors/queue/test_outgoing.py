"""Outgoing: what waits for the log becomes entries within their bounds, each with the slots of its own messages."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.doors.lanes import HandSession
from wakeq.actors.queue import outgoing
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.lanes import Acking, Outgoing, Proposal, Rank, Run
from wakeq.protocol.wire.slots import Slot

DOOR = 1


def queue_with(*wanted: Outgoing) -> Any:
    """Return a queue as far as it matters here."""
    services = SimpleNamespace(defaults=None, raft_log=SimpleNamespace(enlist=lambda queue, lazy=False: None))
    ledger = SimpleNamespace(id=7)
    return SimpleNamespace(name="q", ledger=ledger, services=services, outgoing=list(wanted), delivering=None)


def entries_of(queue: Any) -> list[Proposal]:
    items: list[Proposal] = []
    outgoing.put_entries(queue, items, [])
    return items


def slots_of(count: int) -> list[Slot]:
    return [Slot(HandSession(), place) for place in range(count)]


def run_of(*bodies: bytes, session_id: str = "", first: int = 0) -> Run:
    ordinals = list(range(first, first + len(bodies))) if session_id else []
    return Run(0, DOOR, session_id, True, [Draft(body) for body in bodies], ordinals, slots_of(len(bodies)))


def test_run_of_more_messages_than_an_entry_takes_is_cut_with_its_numbers_and_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "ENTRY_MESSAGES_MAX", 2)
    run = run_of(b"a", b"b", b"c", b"d", b"e", session_id="s", first=11)
    slots = list(run.slots)

    made = entries_of(queue_with(Outgoing(Rank.PUBLISH, run, None)))

    assert [[draft.body for draft in one.entry.drafts] for one in made] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
    assert [list(one.entry.ordinals) for one in made] == [[11, 12], [13, 14], [15]]
    assert [one.reply_to.slots for one in made] == [slots[:2], slots[2:4], slots[4:]]


def test_run_of_more_bytes_than_an_entry_takes_is_cut_and_a_large_message_stands_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "ENTRY_BYTES_MAX", 4)

    made = entries_of(queue_with(Outgoing(Rank.PUBLISH, run_of(b"12", b"12", b"1", b"too large", b"1"), None)))

    bodies = [[draft.body for draft in one.entry.drafts] for one in made]
    assert bodies == [[b"12", b"12"], [b"1"], [b"too large"], [b"1"]]
    assert [len(one.reply_to.slots) for one in made] == [2, 1, 1, 1]


def test_acknowledgements_beyond_one_entry_are_cut_with_their_foreign_uids_and_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "ENTRY_MESSAGES_MAX", 2)
    slots, tokens = slots_of(5), [(1, place) for place in range(5)]
    acking = Acking(DOOR, 7, [1, -1, -1, 4, 5], tokens, {1: "x", 2: "y"}, list(slots), [])

    made = entries_of(queue_with(Outgoing(Rank.ACK, acking, None)))

    assert [one.entry.numbers for one in made] == [[1, -1], [-1, 4], [5]]
    assert [one.entry.tokens for one in made] == [tokens[:2], tokens[2:4], tokens[4:]]
    assert [one.entry.foreign for one in made] == [{1: "x"}, {0: "y"}, {}]
    assert [one.reply_to.slots for one in made] == [slots[:2], slots[2:4], slots[4:]]


@pytest.mark.parametrize(("session_id", "runs"), [("s", 1), ("t", 2), ("", 2)])
def test_run_of_a_later_round_joins_one_of_its_own_session_only(session_id: str, runs: int) -> None:
    queue = queue_with()

    for run in (run_of(b"1", session_id="s", first=1), run_of(b"2", session_id=session_id, first=2)):
        outgoing.take_publishes(queue, SimpleNamespace(publishes=[run]))  # type: ignore[arg-type]

    made = entries_of(queue)
    assert len(made) == runs
    assert [draft.body for one in made for draft in one.entry.drafts] == [b"1", b"2"]


@pytest.mark.parametrize(("first", "entries"), [(3, 1), (4, 2)])
def test_deliveries_are_one_entry_if_their_sequences_run_on(first: int, entries: int) -> None:
    queue = queue_with()
    outgoing.note_delivered(queue, [1, 2], [10, 10], 1, [5, 5], DOOR)
    outgoing.note_delivered(queue, [3], [10], first, [5], DOOR)

    made = entries_of(queue)

    assert len(made) == entries
    assert [number for one in made for number in one.entry.numbers] == [1, 2, 3]
    assert made[-1].entry.first_sequence == (1 if entries == 1 else first)
    assert entries_of(queue) == []
