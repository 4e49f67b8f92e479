"""An archive that is killed, or sleeps, at any of its writes: each event is in the lake once, at every moment."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.journal import files as journal_files
from tests.helpers.journal.files import JournalFiles
from tests.helpers.lakes.lives import add, history, rows_in, told_by, without_cluster
from tests.helpers.lakes.places import KINDS, Kind
from wakeq.pipeline.journal import walk as journal_walk
from wakeq.pipeline.lake import archiving
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.facts import agree
from wakeq.pipeline.lake.notes import Notes
from wakeq.pipeline.lake.place import place_at
from wakeq.protocol.errors import StorageError

DAY_MS = 24 * 3600 * 1000
WRITES_MIN = {"folder": 35, "memory": 9, "renaming": 9, "s3": 9}


class Killed(BaseException):
    """The run ends here."""


@pytest.fixture(autouse=True)
def small_steps_around_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make steps of a few events; one step has files of two days."""
    monkeypatch.setattr(archiving, "STEP_EVENTS", 6)
    monkeypatch.setattr(journal_walk, "PIECE_BYTES", 1)
    monkeypatch.setattr(journal_files, "AT_MS", journal_files.AT_MS // DAY_MS * DAY_MS + DAY_MS - 3000)


def numbers_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["index"], row["place"]) for row in rows]


def notes_and_more(address: str) -> list[str]:
    """Return the files of the notes' folder: one note, if nothing is left over."""
    place = place_at(address)
    return place.names(f"_wakeq/{journal_files.CLUSTER.hex()}")


@pytest.mark.parametrize("kind", [*KINDS[:-1], pytest.param("s3", marks=pytest.mark.long)], indirect=True)
def test_archive_killed_after_any_write_is_continued_with_each_event_once(kind: Kind, memory: Path) -> None:
    files = history(memory, batches=2)
    expected = told_by(files.path)

    def kill() -> None:
        raise Killed

    for number in count(1):
        address = kind.address()
        with kind.at_write(number, kill, after=True) as writes, suppress(Killed):
            archive([files.path], address, bodies=True)
        if len(writes) < number:
            break
        left = numbers_of(rows_in(address))
        assert left == numbers_of(expected)[: len(left)]

        archive([files.path], address, bodies=True)

        assert without_cluster(rows_in(address)) == expected
        (note,) = notes_and_more(address)
        assert note.endswith(".json")

    assert number > WRITES_MIN[kind.name]


class Another:
    """Another archive of the same cluster, which runs while the first one sleeps."""

    def __init__(self, files: JournalFiles, address: str) -> None:
        self._files = files
        self._address = address

    def goes_far(self) -> None:
        """Record and remove notes with the numbers that the first archive will use."""
        for batch in (2, 3):
            add(self._files, batch)
            archive([self._files.path], self._address, bodies=True)
        assert without_cluster(rows_in(self._address)) == told_by(self._files.path)

    def makes_one_step(self) -> None:
        """Record all events with the next number."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archiving, "STEP_EVENTS", 1000)
            archive([self._files.path], self._address, bodies=True)
        assert without_cluster(rows_in(self._address)) == told_by(self._files.path)

    def is_killed_soon(self) -> None:
        """Read the last note, finish its step and remove what is left, but record nothing."""
        agree(place_at(self._address), bodies=True)
        Notes(place_at(self._address), journal_files.CLUSTER.hex())


# A listing lies between two writes, so before the second is not the same as after the first.
@pytest.mark.parametrize(
    ("kind", "after", "another", "lost_min"),
    [
        *((kind, after, Another.goes_far, 3) for kind, after in product(("folder", "memory"), (False, True))),
        *((kind, False, Another.makes_one_step, 3) for kind in ("folder", "memory")),
        *((kind, False, Another.is_killed_soon, 0) for kind in KINDS[:-1]),
        pytest.param("s3", True, Another.goes_far, 3, marks=pytest.mark.long),
        pytest.param("s3", False, Another.makes_one_step, 3, marks=pytest.mark.long),
    ],
    indirect=["kind"],
)
def test_archive_that_sleeps_at_any_write_while_another_runs_adds_nothing_twice(
    kind: Kind, memory: Path, after: bool, another: Callable[[Another], None], lost_min: int
) -> None:
    lost = finished = 0

    for number in count(1):
        files, address = history(memory / str(number), batches=2), kind.address()
        with kind.at_write(number, partial(another, Another(files, address)), after=after) as writes:
            try:
                archive([files.path], address, bodies=True)
                finished += 1
            except StorageError as error:
                lost += "another archive is writing to it" in str(error)
        if len(writes) < number:
            break
        assert lost + finished == number
        assert without_cluster(rows_in(address)) == told_by(files.path)

        archive([files.path], address, bodies=True)

        assert without_cluster(rows_in(address)) == told_by(files.path)
        (note,) = notes_and_more(address)
        assert note.endswith(".json")

    assert lost >= lost_min
    assert finished >= 2


def test_archive_after_a_killed_one_waits_for_nothing(kind: Kind, memory: Path) -> None:
    files, address = history(memory), kind.address()

    def kill() -> None:
        raise Killed

    with kind.at_write(3, kill, after=True), pytest.raises(Killed):
        archive([files.path], address, bodies=True)

    archive([files.path], address, bodies=True)

    assert without_cluster(rows_in(address)) == told_by(files.path)
