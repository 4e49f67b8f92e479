"""Repair: finds the damage in a data directory and what can be done about it.

    data directory, not in use --> inspection --> steps: which file is renamed, and why that loses nothing

Only files that the node can rebuild from sound ones are renamed; nothing is deleted.  Where that is not enough, the
answer names a backup.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wakeq.data.inspect import damage_in, inspect, status_of
from wakeq.data.opening import SNAPSHOT_NAME, read_unused
from wakeq.protocol.errors import DamagedFile, StorageError
from wakeq.storage.directory import DataDirectory
from wakeq.storage.files import is_there, sync_directory
from wakeq.storage.state.environment import DATA_FILE

DAMAGED = "damaged"
BACKUP = "restore a backup (`wakeq restore`), or let a cluster's other nodes fill an empty directory"


@dataclass(frozen=True, slots=True)
class Step:
    """A file or folder that gets another name, and the reason why nothing is lost."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The damage, the steps that repair it, and the part that cannot be repaired here."""

    damage: list[str]
    steps: list[Step]
    hopeless: str = ""
    # The exit status that a start on this directory would have.
    status: int = 0


def examine(data_dir: Path) -> Diagnosis:
    """Inspect a data directory and say what to do."""
    facts = inspect(data_dir)
    directory = read_unused(data_dir)
    damage = [f"{part}: {error}" for part, error in damage_in(facts).items()]
    if facts["log"].get("torn_bytes"):
        damage.append(f"log: its last {facts['log']['torn_bytes']} bytes are an unfinished write; a start removes them")
    found = _diagnose(directory, facts, damage)
    status = status_of(facts) or (DamagedFile.exit_status if found.hopeless else 0)
    return replace(found, status=status)


def _diagnose(directory: DataDirectory, facts: Mapping[str, Any], damage: list[str]) -> Diagnosis:
    broken = set(damage_in(facts))
    if broken & {"metadata", "log"}:
        files = " and ".join(sorted(broken & {"metadata", "log"}))
        return Diagnosis(damage, [], f"the {files} cannot be rebuilt from anything here: {BACKUP}")
    known = max(facts["metadata"]["committed"], facts["state"].get("applied_index", 0))
    if facts["log"]["last_index"] < known:
        lost = f"the log is readable up to entry {facts['log']['last_index']}, but entry {known} was committed"
        return Diagnosis([*damage, f"log: {lost}"], [], f"{lost}: {BACKUP}")
    if not broken:
        return Diagnosis(damage, [])
    if broken == {"state", "snapshot"}:
        return Diagnosis(damage, [], f"neither the state nor the snapshot that could rebuild it is sound: {BACKUP}")
    if "state" in broken:
        return _diagnose_state(directory, facts, damage)
    why = "the state is sound, and the next snapshot is written from it"
    if facts["state"]["applied_index"] + 1 < facts["log"]["first_index"]:
        return Diagnosis(damage, [], f"the log does not continue where the state ends: {BACKUP}")
    return Diagnosis(damage, [Step(directory.consensus / SNAPSHOT_NAME, why)])


def _diagnose_state(directory: DataDirectory, facts: Mapping[str, Any], damage: list[str]) -> Diagnosis:
    """The snapshot and the log rebuild the state if together they reach back to the beginning."""
    snapshot = facts["snapshot"]
    from_index = snapshot["last_index"] if snapshot["present"] else 0
    if facts["log"]["first_index"] > from_index + 1:
        return Diagnosis(damage, [], f"the log does not continue where the snapshot ends: {BACKUP}")
    if not is_there(directory.state / DATA_FILE):
        # There is nothing to rename: a start rebuilds the state.
        return Diagnosis(damage, [])
    begins = f"the snapshot (up to entry {from_index}) and the log" if from_index else "the log"
    return Diagnosis(damage, [Step(directory.state, f"the next start rebuilds it from {begins}")])


def carry_out(data_dir: Path, diagnosis: Diagnosis) -> list[str]:
    """Rename the damaged files, unless a broker has been started meanwhile; return what was done."""
    done = []
    for step in diagnosis.steps:
        read_unused(data_dir)
        name = _free_name(step.path)
        step.path.rename(name)
        sync_directory(step.path.parent)
        done.append(f"{step.path} is now {name.name}")
    return done


def _free_name(path: Path) -> Path:
    for number in range(1, 1_000):
        name = path.with_name(f"{path.name}.{DAMAGED}-{number}")
        if not name.exists():
            return name
    raise StorageError(f"{path}: a thousand damaged copies are beside it; remove some")
