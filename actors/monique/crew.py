"""Crew: the components at a controller's port: who has which task, and whose turn it is.

    who is there, tasks that are given, answers, the time --> who is next, what was lost, what is over

Each has one task at a time.  Pure; must never do more for an answer than it would if there were one component.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from wakeq.protocol.queue.outcomes import Delivery


class Out(NamedTuple):
    """What a component has; the delivery is without its body."""

    task_id: str
    delivery: Delivery


class Crew:
    """See the head of this file."""

    def __init__(self) -> None:
        self._free: dict[int, None] = {}  # without a task, who has been so for longest first
        self._overdue: dict[int, None] = {}  # the same, but their last one was not answered while they had it
        self._out: dict[int, Out] = {}  # what each of the others has
        self._holders: dict[str, list[int]] = {}  # who has a task, several if it was pushed several times

    @property
    def out(self) -> int:
        """How many tasks are with components."""
        return len(self._out)

    @property
    def next_end_ms(self) -> int | None:
        """When the first lease is over."""
        return min((one.delivery.until_ms for one in self._out.values()), default=None)

    def in_turn(self) -> Iterator[int]:
        """Return those without a task; one that hangs would only keep the next one from the others, so it is last."""
        return chain(self._free, self._overdue)

    def meet(self, components: Iterable[int]) -> list[Out]:
        """These are there now; return what those have who are not."""
        there = dict.fromkeys(components)
        lost = [self._take_from(component) for component in [one for one in self._out if one not in there]]
        self._free = {one: None for one in self._free if one in there}
        self._overdue = {one: None for one in self._overdue if one in there}
        self._free |= {one: None for one in there if one not in self._out and one not in self._overdue}
        return lost

    def give(self, component: int, out: Out) -> None:
        """It has this from now on."""
        self._free.pop(component, None)
        self._overdue.pop(component, None)
        self._out[component] = out
        self._holders.setdefault(out.task_id, []).append(component)

    def end(self, task_id: str) -> list[Out]:
        """A task was answered, by whomever; whoever has it is to have the next one."""
        holders = list(self._holders.get(task_id, ()))
        self._free |= dict.fromkeys(holders)
        return [self._take_from(component) for component in holders]

    def expire(self, now_ms: int) -> list[Out]:
        """Return those whose lease is over; they are somebody else's."""
        late = [component for component, one in self._out.items() if one.delivery.until_ms <= now_ms]
        self._overdue |= dict.fromkeys(late)
        return [self._take_from(component) for component in late]

    def _take_from(self, component: int) -> Out:
        out = self._out.pop(component)
        holders = self._holders[out.task_id]
        holders.remove(component)
        if not holders:
            del self._holders[out.task_id]
        return out
