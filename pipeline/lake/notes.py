"""The notes of one cluster in a lake: a chain of numbered files, each with the progress after one step.

    PLACE/_wakeq/<cluster>/<number>.json                        a note
    PLACE/_wakeq/<cluster>/<number>-<run>-<date>.parquet        an unfinished file of the step with this number

An archive writes the unfinished files of a step, then creates the note with the next number, then gives the files their
final names in folders `date=...`.  A file system creates a name once, so of two archives that are at the same step one
goes on, and the other one ends before any of its files counts.  No archive holds a lock, so none has to wait for
another one that was killed or that sleeps: the next run finishes the files of the last note, and an archive that wakes
up finds that its number was taken.

Only the last note is kept.  An archive that has slept for long could create a number that others have used and removed;
therefore it looks for higher numbers after the creation, before its files count.
"""

import os
import re
import socket
from dataclasses import asdict, dataclass, field
from uuid import uuid4

import msgspec

from wakeq.pipeline.lake.facts import NOTE_FOLDER, damaged
from wakeq.pipeline.lake.place import Place
from wakeq.protocol.errors import StorageError

# The last note may be removed between the listing and the reading; then the folder is listed again.
LIST_TRIES = 5
_NOTE = re.compile(r"(\d{19})\.json")
_NUMBERED = re.compile(r"(\d{19})[.-].*")


@dataclass(frozen=True, slots=True)
class Note:
    """The progress of a cluster after a step."""

    # The next entry of the log.
    next_index: int = 1
    # How far each queue has counted before that entry; None if that is not known for all of them.
    counters: dict[str, tuple[int, int]] | None = None
    # In the lake, of this cluster.
    events: int = 0
    # The files of this step: unfinished name to final name.
    files: dict[str, str] = field(default_factory=dict)
    # Host and process, to be named to others.
    archive: str = ""
    # Different for each run: notes of two runs are never equal.
    run: str = ""


class Notes:
    """The chain of one cluster, as one archive knows it."""

    def __init__(self, place: Place, cluster: str) -> None:
        self._place = place
        self._folder = f"{NOTE_FOLDER}/{cluster}"
        self._run = uuid4().hex
        self._archive = f"{socket.gethostname()}, process {os.getpid()}"
        # The last note, and its number; 0 before the first step.
        self.last = Note()
        self._number = 0
        self._read_last()

    def unfinished_name(self, date: str) -> str:
        """Return the name of a file of the next step before the step is recorded."""
        return f"{self._folder}/{self._number + 1:019d}-{self._run}-{date}.parquet"

    def record(self, next_index: int, counters: dict[str, tuple[int, int]] | None, rows: int,
               files: dict[str, str], contents: dict[str, bytes]) -> None:  # fmt: skip
        """Record a step, then give its files their final names.

        Raises StorageError if another archive has recorded a step meanwhile; then no file of this one counts.
        """
        note = Note(next_index, counters, self.last.events + rows, files, self._archive, self._run)
        number = self._number + 1
        created = self._place.create(self._name(number), msgspec.json.encode(asdict(note)))
        names = self._place.names(self._folder)
        if not created or _highest(names) > number:
            self._read_last()
            raise StorageError(
                f"{self._place.address}: another archive is writing to it ({self.last.archive}); it goes on, and this "
                "one has stopped"
            )
        self.last, self._number = note, number
        self._finish(names, contents)

    def _read_last(self) -> None:
        """Read the last note and finish its step: the archive that recorded it may have been killed."""
        for _ in range(LIST_TRIES):
            names = self._place.names(self._folder)
            number = _highest(names)
            if number == 0:
                return
            try:
                text = self._place.read(self._name(number))
            except FileNotFoundError:
                continue
            try:
                self.last = msgspec.json.decode(text, type=Note)
            except msgspec.MsgspecError:
                raise damaged(self._place, self._name(number), text) from None
            self._number = number
            self._finish(names, {})
            return
        raise StorageError(f"{self._place.address}: another archive is writing to it; wait until it has ended")

    def _finish(self, names: list[str], contents: dict[str, bytes]) -> None:
        """Give the files of the last note their final names, and remove what is left of earlier steps."""
        here = {f"{self._folder}/{name}" for name in names}
        for unfinished, final in self.last.files.items():
            if unfinished in here:
                self._place.move(unfinished, final, contents.get(unfinished))
        # Files of the next number may belong to an archive that is running.
        old = (name for name in names if (found := _NUMBERED.fullmatch(name)) and int(found[1]) <= self._number)
        kept = {self._name(self._number), *self.last.files}
        self._place.remove(sorted({f"{self._folder}/{name}" for name in old} - kept))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:019d}.json"


def _highest(names: list[str]) -> int:
    return max((int(found[1]) for name in names if (found := _NOTE.fullmatch(name))), default=0)
