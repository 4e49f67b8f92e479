"""Proves that a pool is never deaf: every interleaving of answers, wakes, losses, stops and other workers is tried.

The model is the broker as its contract has it (docs/internals/flow.md, "The wake contract"), a connection that may
break with anything on its way, and a client that hears wakes at once and answers a little later.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from wakeq.worker.appetite import Appetite, Fetch, Question, Sleep


@dataclass
class World:
    """One state of worker, broker and the wires between them."""

    appetite: Appetite
    queues: tuple[str, ...]
    to_publish: int
    losses: int
    steals: int
    closes: int = 0
    ready: dict[str, int] = field(default_factory=dict)
    sleeping: set[str] = field(default_factory=set)
    asked: list[Question] = field(default_factory=list)  # on their way to the broker
    replies: list[tuple[str, Any, int]] = field(default_factory=list)  # on their way back
    answers: list[tuple[str, Any, int]] = field(default_factory=list)  # arrived; their tasks have not run yet
    paused: list[str] = field(default_factory=list)
    held: int = 0
    online: bool = True

    def key(self) -> Any:
        """What makes two states the same."""
        return repr([vars(self.appetite), *(value for name, value in vars(self).items() if name != "appetite")])

    # What may happen by itself --------------------------------------------------------------------------

    def inner_steps(self) -> Iterator["World"]:
        """Everything that goes on without a cause from outside; a stuck world has none."""
        if self.asked and self.online:
            yield self.after(lambda world: world.broker_hears())
        if self.replies:
            yield self.after(lambda world: world.client_hears())
        for place in range(len(self.answers)):
            yield self.after(lambda world, place=place: world.task_runs(place))
        if self.paused:
            yield self.after(lambda world: world.resume())
        if self.held:
            yield self.after(lambda world: world.handler_ends())
        if not self.online:
            yield self.after(lambda world: world.reconnect())

    def outer_steps(self) -> Iterator["World"]:
        """What others do, each a bounded number of times."""
        if self.to_publish:
            for queue in self.queues:
                yield self.after(lambda world, queue=queue: world.publish(queue))
        if self.steals:
            for queue in self.queues:
                if self.ready.get(queue):
                    yield self.after(lambda world, queue=queue: world.steal(queue))
        if self.losses and self.online:
            yield self.after(lambda world: world.lose())
        if self.closes:
            yield self.after(lambda world: world.close())

    def after(self, step: Any) -> "World":
        world = deepcopy(self)
        step(world)
        world.wake()
        return world

    # The broker -----------------------------------------------------------------------------------------

    def publish(self, queue: str) -> None:
        self.to_publish -= 1
        self.ready[queue] = self.ready.get(queue, 0) + 1

    def steal(self, queue: str) -> None:
        self.steals -= 1
        self.ready[queue] -= 1

    def wake(self) -> None:
        """Level-triggered: nobody sleeps un-woken while something is available."""
        for queue in sorted(self.sleeping):
            if self.ready.get(queue):
                self.sleeping.discard(queue)
                self.replies.append(("awk", queue, 0))

    def broker_hears(self) -> None:
        question = self.asked.pop(0)
        if isinstance(question, Fetch):
            count = min(question.count, self.ready.get(question.queue, 0))
            self.ready[question.queue] = self.ready.get(question.queue, 0) - count
            self.replies.append(("fetched", question, count))
        else:
            self.sleeping.add(question.queue)
            self.replies.append(("slept", question, 0))

    # The client -----------------------------------------------------------------------------------------

    def client_hears(self) -> None:
        kind, what, count = self.replies.pop(0)
        if kind == "awk":
            self.appetite.awoken(what)
            self.ask()
        else:
            self.answers.append((kind, what, count))

    def task_runs(self, place: int) -> None:
        kind, question, count = self.answers.pop(place)
        match kind:
            case "fetched":
                self.appetite.answered(question, count)
                self.held += count
            case "slept":
                self.appetite.slept(question)
            case _:
                self.appetite.refused(question)
                self.paused.append(question.queue)
        self.ask()

    def resume(self) -> None:
        self.appetite.resumed(self.paused.pop(0))
        self.ask()

    def handler_ends(self) -> None:
        self.held -= 1
        self.appetite.freed(1)
        self.ask()

    def close(self) -> None:
        self.closes -= 1
        self.appetite.close()

    def lose(self) -> None:
        """What is on the wires is gone; the client repeats fetches, and a Sleep has failed."""
        self.losses -= 1
        self.online = False
        lost = [what for kind, what, _ in self.replies if kind != "awk"]
        for kind, what, count in self.replies:
            if kind == "fetched":
                self.ready[what.queue] += count  # their leases run out
        self.answers += [("failed", what, 0) for what in [*self.asked, *lost] if isinstance(what, Sleep)]
        self.asked = [what for what in [*lost, *self.asked] if isinstance(what, Fetch)]
        self.replies.clear()
        self.sleeping.clear()
        self.appetite.lost()
        self.ask()

    def reconnect(self) -> None:
        self.online = True
        self.appetite.connected()
        self.ask()

    def ask(self) -> None:
        questions = self.appetite.questions()
        assert self.online or not questions, "asked without a connection"
        assert not (questions and self.appetite._closed), "asked after it was closed"
        self.asked += questions

    # What must hold -------------------------------------------------------------------------------------

    def check(self, *, room: int) -> None:
        under_way = [what.queue for what in self.asked]
        under_way += [what.queue for kind, what, _ in self.replies if kind != "awk"]
        under_way += [what.queue for _, what, _ in self.answers]
        assert len(under_way) == len(set(under_way)), "two questions for one queue"
        assert self.held <= room, "more than there is room for"

    def stuck_before_work(self) -> bool:
        return any(self.ready.values()) and not self.appetite._closed


def explore(start: World, *, room: int) -> int:
    """Visit every state that can be reached; return how many there are."""
    start.reconnect()
    seen = {start.key()}
    line = [start]
    while line:
        world = line.pop()
        world.check(room=room)
        inner = list(world.inner_steps())
        if not inner:
            assert not world.stuck_before_work(), f"messages wait and nobody asks: {world}"
        for following in [*inner, *world.outer_steps()]:
            if (key := following.key()) not in seen:
                seen.add(key)
                line.append(following)
    return len(seen)


@pytest.mark.parametrize(
    ("queues", "slots", "to_publish", "losses", "steals", "closes"),
    [
        (("a",), 1, 2, 1, 1, 0),
        (("a",), 2, 3, 1, 0, 0),
        (("a",), 1, 1, 2, 0, 1),
        (("a", "b"), 1, 2, 1, 0, 0),
        (("a", "b"), 2, 2, 0, 1, 1),
    ],
)
def test_no_message_waits_for_a_worker_that_has_room(
    queues: tuple[str, ...], slots: int, to_publish: int, losses: int, steals: int, closes: int
) -> None:
    world = World(Appetite(queues, slots=slots), queues, to_publish, losses, steals, closes)

    states = explore(world, room=slots)

    assert states > 100


def test_a_worker_with_nothing_to_do_says_nothing_more() -> None:
    appetite = Appetite(["a"], slots=2)
    appetite.connected()
    (fetch,) = appetite.questions()
    assert isinstance(fetch, Fetch)
    appetite.answered(fetch, 0)
    (sleep,) = appetite.questions()
    assert isinstance(sleep, Sleep)

    appetite.slept(sleep)

    assert appetite.questions() == []


def test_an_answer_of_an_older_connection_does_not_put_it_to_sleep() -> None:
    appetite = Appetite(["a"], slots=1)
    appetite.connected()
    (fetch,) = appetite.questions()
    assert isinstance(fetch, Fetch)
    appetite.answered(fetch, 0)
    (sleep,) = appetite.questions()
    assert isinstance(sleep, Sleep)
    appetite.lost()
    appetite.connected()

    appetite.slept(sleep)

    assert appetite.questions() == [Fetch("a", 1)]


def test_queues_take_turns() -> None:
    appetite = Appetite(["a", "b"], slots=4)
    appetite.connected()
    order = []

    for _ in range(4):
        (fetch,) = appetite.questions()
        assert isinstance(fetch, Fetch)
        order.append(fetch.queue)
        appetite.answered(fetch, 4)
        appetite.freed(4)

    assert order == ["a", "b", "a", "b"]


def test_what_is_ahead_is_asked_for_by_halves_and_not_one_by_one() -> None:
    appetite = Appetite(["a"], slots=2)
    appetite.connected()
    (fetch,) = appetite.questions()
    assert isinstance(fetch, Fetch)
    appetite.answered(fetch, 2)
    appetite.reach(8)
    more = Fetch("a", 8)
    assert appetite.questions() == [more]
    appetite.answered(more, 8)

    counts = []
    for _ in range(5):
        appetite.freed(1)
        counts.append(appetite.questions())

    assert counts == [[], [], [], [], [Fetch("a", 5)]]


def test_a_reach_beyond_one_fetch_still_asks() -> None:
    appetite = Appetite(["a"], slots=64)
    appetite.reach(4096)

    appetite.connected()

    assert appetite.questions() == [Fetch("a", 1000)]
