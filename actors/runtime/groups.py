"""Groups: named sets of processes, such as a queue's subscribers or its sleepers.

    join, leave --> membership --> members, first, count

A group exists while it has members.  A process that ends is forgotten by all its groups: the runtime sees to
that.  It lives on the runtime's thread, holds no rule, and never tells anybody anything.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wakeq.actors.runtime.runtime import Process


_NOTHING: Final = object()


class Groups:
    """Who belongs where.  A group's name is any hashable; members stand in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[Hashable, dict[Process, None]] = {}
        # A process in one group has that group's name here, one in several a dict of them: a name is hashable
        # and so never a dict, and 15,000 processes in one group each need no dict each.
        self._groups_of: dict[Process, Any] = {}

    def join(self, group: Hashable, process: Process) -> None:
        """Put process at the end of group; nothing happens if it is a member or has ended."""
        if not process.alive:
            return
        members = self._members.setdefault(group, {})
        if process in members:
            return
        members[process] = None
        known = self._groups_of.get(process, _NOTHING)
        if known is _NOTHING:
            self._groups_of[process] = group
        elif type(known) is dict:
            known[group] = None
        else:
            self._groups_of[process] = {known: None, group: None}

    def leave(self, group: Hashable, process: Process) -> None:
        """Take process out of group; nothing happens if it is no member."""
        members = self._members.get(group)
        if members is None or process not in members:
            return
        self._drop(group, process)
        known = self._groups_of[process]
        if type(known) is not dict:
            del self._groups_of[process]
            return
        del known[group]
        if len(known) == 1:
            (self._groups_of[process],) = known

    def forget(self, process: Process) -> None:
        """Take process out of all its groups."""
        known = self._groups_of.pop(process, _NOTHING)
        if known is _NOTHING:
            return
        for group in known if type(known) is dict else (known,):
            self._drop(group, process)

    def _drop(self, group: Hashable, process: Process) -> None:
        members = self._members[group]
        del members[process]
        if not members:
            del self._members[group]

    def members(self, group: Hashable) -> list[Process]:
        """Return the members in join order, as a list of its own."""
        return list(self._members.get(group, ()))

    def groups_of(self, process: Process) -> list[Hashable]:
        """Return the groups that a process is in."""
        known = self._groups_of.get(process, _NOTHING)
        if known is _NOTHING:
            return []
        return list(known) if type(known) is dict else [known]

    def first(self, group: Hashable, at_most: int) -> list[Process]:
        """Return those who joined first."""
        return list(islice(self._members.get(group, ()), at_most))

    def count(self, group: Hashable) -> int:
        """Return how many members group has."""
        return len(self._members.get(group, ()))

    def __len__(self) -> int:
        return len(self._members)
