"""Links: who watches whom, and the Down that a watcher is told when the process it watches ends.

    monitor(watcher, target, tag) ... target ends --> watcher.tell(Down(target, reason, tag)), once

Nothing is stored for a process that is neither watched nor watching.  It never ends a process by itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from wakeq.actors.runtime.runtime import Process


class Down(NamedTuple):
    """A watched process has ended: reason is None if it was stopped, else what it failed with."""

    process: Process
    reason: BaseException | None
    tag: Any


class NoSuchProcess(LookupError):
    """The reason in a Down for a process that had ended before it was watched."""


class Links:
    """All monitors of one runtime.  For each pair of watcher and target there is at most one."""

    def __init__(self) -> None:
        self._watchers: dict[Process, dict[Process, Hashable]] = {}  # target -> watcher -> tag
        self._targets: dict[Process, dict[Process, None]] = {}  # watcher -> targets: the same pairs, turned round

    def monitor(self, watcher: Process, target: Process, tag: Any = None) -> None:
        """Promise watcher a Down for target; a second call replaces the tag."""
        if not target.alive:
            watcher.tell(Down(target, NoSuchProcess(f"{target!r} had ended before it was watched"), tag))
        elif watcher.alive:
            self._watchers.setdefault(target, {})[watcher] = tag
            self._targets.setdefault(watcher, {})[target] = None

    def demonitor(self, watcher: Process, target: Process) -> None:
        """Take the promise back; a Down that was already told stays in the mailbox."""
        _take(self._watchers, target, watcher)
        _take(self._targets, watcher, target)

    def end(self, process: Process, reason: BaseException | None) -> None:
        """Tell all who watch process, and forget what it watched."""
        for watcher, tag in self._watchers.pop(process, {}).items():
            _take(self._targets, watcher, process)
            watcher.tell(Down(process, reason, tag))
        for target in self._targets.pop(process, ()):
            _take(self._watchers, target, process)

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))


def _take(table: dict[Process, dict[Process, Any]], row: Process, column: Process) -> None:
    columns = table.get(row)
    if columns is not None and columns.pop(column, _take) is not _take and not columns:
        del table[row]
