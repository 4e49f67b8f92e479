"""What holds for a whole lake: the version of its form, and whether it has bodies.

    PLACE/_wakeq/lake.json: {"version": 4, "bodies": true}

The first archive creates this file, and nobody changes it: all files of a lake have the same columns.
"""

from dataclasses import asdict, dataclass

import msgspec
import pyarrow as pa

from wakeq.pipeline.journal.rows import KINDS, USUAL
from wakeq.pipeline.lake.place import Place
from wakeq.protocol.errors import BadSettings, DamagedFile, WrongVersion

# Readers of Parquet skip names that begin with _ or a dot.
NOTE_FOLDER = "_wakeq"
FACTS_NAME = f"{NOTE_FOLDER}/lake.json"
# In versions 1 and 2 stashed messages were recorded as published; in version 3 a cluster had one note without number.
VERSION = 4
_OTHER_RELEASE = "use the release that wrote it, or archive into an empty folder"


@dataclass(frozen=True, slots=True)
class Facts:
    version: int
    bodies: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns of every file: those of the journal, and the cluster."""
        names = (*USUAL, "incarnation", "number", *(("body",) if self.bodies else ()))
        return pa.schema([("cluster", pa.string()), *((name, KINDS[name]) for name in names)])


def read_facts(place: Place) -> Facts | None:
    """Return the facts of a lake; None if nobody has archived there."""
    try:
        text = place.read(FACTS_NAME)
    except FileNotFoundError:
        # The facts themselves may have been created a moment ago.
        if any(name.endswith(".json") and name != "lake.json" for name in place.names(NOTE_FOLDER)):
            raise WrongVersion(
                f"{place.address}: holds version 3 or an earlier one, this release reads {VERSION}; {_OTHER_RELEASE}"
            ) from None
        return None
    try:
        facts = msgspec.json.decode(text, type=Facts)
    except msgspec.MsgspecError:
        raise damaged(place, FACTS_NAME, text) from None
    if facts.version != VERSION:
        raise WrongVersion(
            f"{place.address}: holds version {facts.version}, this release reads {VERSION}; {_OTHER_RELEASE}"
        )
    return facts


def agree(place: Place, *, bodies: bool) -> Facts:
    """Return the facts of a lake, and create them if this is its first archive; refuse one that differs in bodies."""
    wanted = Facts(VERSION, bodies)
    # Of two first archives one creates the file, and the other one has to agree.
    facts = read_facts(place)
    if facts is None:
        facts = wanted if place.create(FACTS_NAME, msgspec.json.encode(asdict(wanted))) else read_facts(place)
    if facts != wanted:
        has, what = ("has no", "archive without --bodies") if bodies else ("has", "archive with --bodies")
        raise BadSettings(f"{place.address} {has} bodies; {what}, or into another folder")
    return wanted


def damaged(place: Place, name: str, found: bytes) -> DamagedFile:
    hint = "restore the lake from a copy, or archive into an empty folder"
    text = repr(found[:60].decode(errors="replace"))
    return DamagedFile(f"{place.address}/{name}", 0, found=text, expected="what an archive has written", hint=hint)
