"""The outcomes of the entries of a piece: done, refused for a reason, or not known yet.

entries, items, the notes of a span --> a code for each entry and for each of its items
"""

from dataclasses import dataclass

import numpy as np

from wakeq.pipeline.journal.columns import OF_STASHES, Bools, Entries, Ints, Items
from wakeq.protocol.log.entries import Result
from wakeq.protocol.log.outcomes import WHOLE

# No node is known to have applied the entry yet.
OPEN = 1


@dataclass(slots=True)
class Codes:
    """The outcomes of entries and items: 0 done, below 0 refused, OPEN not known."""

    entry: Ints
    item: Ints
    # By item: acknowledged, and never delivered before.
    cancelled: Bools
    # By item: a message of a stash that was dropped, by an entry that publishes others.
    dropped: Bools
    # By item: the number of a message where the log has none (a foreign uid, a stash); else 0.
    found: Ints


@dataclass(slots=True)
class Noted:
    """The notes of one piece: about entries as a whole, about items, and runs of messages in stashes."""

    whole: Ints
    single: Ints
    runs: Ints


def notes_in(entries: Entries, notes: Ints) -> Noted:
    """Choose the notes of these entries."""
    low, high = np.searchsorted(notes[:, 0], [entries.index[0], entries.index[-1] + 1])
    notes = notes[low:high]
    whole = notes[:, 1] == WHOLE
    of_stashes = np.isin(entries.kind[np.searchsorted(entries.index, notes[:, 0])], OF_STASHES)
    runs = of_stashes & ~whole & (notes[:, 2] > 0)
    return Noted(notes[whole], notes[~whole & ~of_stashes], notes[runs])


def named_by(entries: Entries, noted: Noted) -> Ints:
    """Return for each entry the number of messages of stashes that it is about."""
    counts = np.zeros(len(entries.index), dtype=np.int64)
    np.add.at(counts, np.searchsorted(entries.index, noted.runs[:, 0]), _sizes_of(noted.runs))
    return counts


def _sizes_of(runs: Ints) -> Ints:
    """Return the number of messages in each run; that of dropped messages is below WHOLE."""
    places = runs[:, 1]
    return np.where(places < 0, WHOLE - places, places)


def codes_of(entries: Entries, items: Items, noted: Noted, through: int) -> Codes:
    """Return the outcomes of these entries; entries after `through` are open."""
    entry = np.where(entries.index > through, OPEN, 0)
    item, found = np.zeros((2, len(items.entry)), dtype=np.int64)
    cancelled, dropped = np.zeros((2, len(items.entry)), dtype=np.bool_)
    if len(noted.whole):
        _note_whole(entries, noted.whole, entry)
    if len(noted.single):
        _note_items(entries, items, noted.single, item, found)
        cancelled = item == Result.CANCELLED
        item[cancelled] = 0
    if len(noted.runs):
        _note_runs(entries, items, noted.runs, found, dropped)
    of_entry = entry[items.entry]
    return Codes(entry, np.where(of_entry != 0, of_entry, item), cancelled, dropped, found)


def _note_whole(entries: Entries, notes: Ints, entry: Ints) -> None:
    """Apply notes about whole entries; they hold for follow-ups, too."""
    place = np.searchsorted(notes[:, 0], entries.index)
    place = np.minimum(place, len(notes) - 1)
    noted = notes[place, 0] == entries.index
    entry[noted] = notes[place[noted], 2]


def _note_items(entries: Entries, items: Items, notes: Ints, item: Ints, found: Ints) -> None:
    """Apply notes about items. Notes about items that do not exist are dropped: earlier builds wrote some about
    renewals.
    """
    entry = np.searchsorted(entries.index, notes[:, 0])
    sizes = np.diff(np.append(items.first, len(items.entry)))
    is_own = notes[:, 1] < sizes[entry]
    notes, rows = notes[is_own], (items.first[entry] + notes[:, 1])[is_own]
    refused = notes[:, 2] < 0
    item[rows[refused]] = notes[refused, 2]
    found[rows[~refused]] = notes[~refused, 2]
    # A message that was delivered and acknowledged at once has two items; a note about it is about both.
    extra = np.flatnonzero(items.is_extra)
    item[extra + entries.counts[items.entry[extra]]] = item[extra]


def _note_runs(entries: Entries, items: Items, notes: Ints, found: Ints, dropped: Bools) -> None:
    """Number the messages of each run; the runs of one entry follow each other."""
    position: dict[int, int] = {}
    for (index, place, first), count in zip(notes.tolist(), _sizes_of(notes).tolist(), strict=True):
        entry = int(np.searchsorted(entries.index, index))
        start = position.get(entry, int(items.first[entry]))
        found[start : start + count] = np.arange(first, first + count)
        dropped[start : start + count] = place < 0
        position[entry] = start + count
