"""Repairing: a damaged data directory: what is wrong with it, what can be done, and doing it.

    data directory, nobody using it --> inspected --> Steps: what is set aside, and why that loses nothing

Only what the node can make again from what is sound is ever set aside, under another name: nothing is deleted.  Where
that is not so, the answer is a backup, and it is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wakeq.data.inspect import damage_in, inspect, status_of
from wakeq.data.opening import SNAPSHOT_NAME
from wakeq.protocol.errors import DamagedFile, DirectoryInUse, StorageError
from wakeq.storage.directory import DataDirectory
from wakeq.storage.files import is_there, sync_directory
from wakeq.storage.state.environment import DATA_FILE

ASIDE = "damaged"
BACKUP = "restore a backup (`wakeq restore`), or let a cluster's other nodes fill an empty directory"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: this file or folder gets another name."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, what would mend it, and what cannot be mended here."""

    damage: list[str]
    steps: list[Step]
    hopeless: str = ""
    status: int = 0  # of a start, as far as damage goes


def examine(data_dir: Path) -> Diagnosis:
    """Look at a data directory, and say what to do."""
    facts = inspect(data_dir)
    _refuse_if_in_use(data_dir)
    damage = [f"{part}: {error}" for part, error in damage_in(facts).items()]
    if facts["log"].get("torn_bytes"):
        damage.append(f"log: {facts['log']['torn_bytes']} bytes at its end were never completed; a start cuts them off")
    found = _diagnose(DataDirectory.read_only(data_dir), facts, damage)
    status = status_of(facts) or (DamagedFile.exit_status if found.hopeless else 0)
    return replace(found, status=status)


def _refuse_if_in_use(data_dir: Path) -> None:
    pid = DataDirectory.read_only(data_dir).holder_pid
    if pid is not None:
        raise DirectoryInUse(f"{data_dir}: in use by the node with pid {pid or 'unknown'}; stop it first")


def _diagnose(directory: DataDirectory, facts: Mapping[str, Any], damage: list[str]) -> Diagnosis:
    broken = set(damage_in(facts))
    if broken & {"metadata", "log"}:
        what = " and ".join(sorted(broken & {"metadata", "log"}))
        return Diagnosis(damage, [], f"the {what} cannot be made again from anything here: {BACKUP}")
    known = max(facts["metadata"]["committed"], facts["state"].get("applied_index", 0))
    if facts["log"]["last_index"] < known:
        lost = f"the log can be read up to entry {facts['log']['last_index']}, and entry {known} was committed"
        return Diagnosis([*damage, f"log: {lost}"], [], f"{lost}: {BACKUP}")
    if not broken:
        return Diagnosis(damage, [])
    if broken == {"state", "snapshot"}:
        return Diagnosis(damage, [], f"neither the state nor the snapshot that it is made from is sound: {BACKUP}")
    if "state" in broken:
        return _without_state(directory, facts, damage)
    why = "the state is sound, and the next snapshot is written from it"
    if facts["state"]["applied_index"] + 1 < facts["log"]["first_index"]:
        return Diagnosis(damage, [], f"the log does not go on where the state ends: {BACKUP}")
    return Diagnosis(damage, [Step(directory.consensus / SNAPSHOT_NAME, why)])


def _without_state(directory: DataDirectory, facts: Mapping[str, Any], damage: list[str]) -> Diagnosis:
    """The state is made from the snapshot and the log, if together they reach back to the beginning."""
    snapshot = facts["snapshot"]
    from_index = snapshot["last_index"] if snapshot["present"] else 0
    if facts["log"]["first_index"] > from_index + 1:
        return Diagnosis(damage, [], f"the log does not go on where the snapshot ends: {BACKUP}")
    if not is_there(directory.state / DATA_FILE):
        return Diagnosis(damage, [])  # there is nothing to set aside: a start makes it
    begins = f"the snapshot (up to entry {from_index}) and the log" if from_index else "the log"
    return Diagnosis(damage, [Step(directory.state, f"the next start makes it again from {begins}")])


def carry_out(data_dir: Path, diagnosis: Diagnosis) -> list[str]:
    """Set aside what is to be set aside, unless a broker has been started meanwhile; return what was done."""
    done = []
    for step in diagnosis.steps:
        _refuse_if_in_use(data_dir)
        aside = _free_name(step.path)
        step.path.rename(aside)
        sync_directory(step.path.parent)
        done.append(f"{step.path} is now {aside.name}")
    return done


def _free_name(path: Path) -> Path:
    for number in range(1, 1_000):
        name = path.with_name(f"{path.name}.{ASIDE}-{number}")
        if not name.exists():
            return name
    raise StorageError(f"{path}: a thousand damaged copies lie beside it; remove some")
