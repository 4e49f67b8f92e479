"""Proves that a pool is never deaf, and when it is sated: every interleaving of answers, wakes, losses, stops and other
workers is tried.

The model is the broker as its contract has it (docs/internals/flow.md, "The wake contract"), a connection that may
break with anything on its way, and a client that hears wakes at once and answers a little later.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from wakeq.worker.engine.fetch_planner import Fetch, FetchPlanner, Request, Sleep
from wakeq.worker.engine.message_limit import MessageLimit


@dataclass(frozen=True)
class Settle:
    """What became of a message: it went back to this queue, or on to it, or is gone."""

    back: str | None


@dataclass
class World:
    """One state of worker, broker and the wires between them.  With `drain` or a limit it ends by itself."""

    planner: FetchPlanner
    queues: tuple[str, ...]
    to_publish: int
    losses: int
    steals: int
    closes: int = 0
    limit: MessageLimit = field(default_factory=MessageLimit)
    drain: bool = False
    backs: int = 0  # how often a message of ours may go back to a queue
    ready: dict[str, int] = field(default_factory=dict)
    sleeping: set[str] = field(default_factory=set)
    asked: list[Request | Settle] = field(default_factory=list)  # on their way to the broker
    replies: list[tuple[str, Any, int]] = field(default_factory=list)  # on their way back
    answers: list[tuple[str, Any, int]] = field(default_factory=list)  # arrived; their tasks have not run yet
    paused: list[str] = field(default_factory=list)
    held: int = 0
    online: bool = True
    ended: bool = False

    def key(self) -> Any:
        """What makes two states the same."""
        planner = vars(self.planner) | {"_limit": None}
        world = vars(self) | {"planner": None, "limit": None}
        return repr([list(facts.values()) for facts in (planner, vars(self.limit), world)])

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
            for back in [None, *self.queues] if self.backs else [None]:
                yield self.after(lambda world, back=back: world.handler_ends(back))
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
        world: World = pickle.loads(pickle.dumps(self, -1))  # half of the time that deepcopy takes
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
        request = self.asked.pop(0)
        if isinstance(request, Fetch):
            count = min(request.count, self.ready.get(request.queue, 0))
            self.ready[request.queue] = self.ready.get(request.queue, 0) - count
            self.replies.append(("fetched", request, count))
        elif isinstance(request, Settle):
            if request.back is not None:
                self.ready[request.back] = self.ready.get(request.back, 0) + 1
            self.replies.append(("settled", request, 0))
        else:
            self.sleeping.add(request.queue)
            self.replies.append(("slept", request, 0))

    # The client -----------------------------------------------------------------------------------------

    def client_hears(self) -> None:
        kind, what, count = self.replies.pop(0)
        if kind == "awk":
            self.planner.woken(what)
            self.ask()
        else:
            self.answers.append((kind, what, count))

    def task_runs(self, place: int) -> None:
        kind, request, count = self.answers.pop(place)
        match kind:
            case "fetched":
                self.planner.fetched(request, count)
                self.held += count
            case "slept":
                self.planner.slept(request)
            case "settled":
                if self.drain and self.holds_nothing():
                    self.planner.recheck()
            case _:
                self.planner.refused(request)
                self.paused.append(request.queue)
        self.ask()
        self.end_if_done()

    def resume(self) -> None:
        self.planner.resumed(self.paused.pop(0))
        self.ask()

    def handler_ends(self, back: str | None) -> None:
        self.held -= 1
        self.backs -= back is not None
        self.planner.released(1)
        if self.drain or self.limit._limit < 10:
            self.asked.append(Settle(back))
        self.ask()

    def holds_nothing(self) -> bool:
        """Nothing is held, and what became of everything was heard."""
        under_way = [*self.asked, *(what for _, what, _ in [*self.replies, *self.answers])]
        return not self.held and not any(isinstance(what, Settle) for what in under_way)

    def end_if_done(self) -> None:
        if (self.limit.is_reached or (self.drain and self.planner.all_empty)) and self.holds_nothing():
            self.planner.close()
            self.ended = True

    def close(self) -> None:
        self.closes -= 1
        self.planner.close()

    def lose(self) -> None:
        """What is on the wires is gone; the client repeats fetches, and a Sleep has failed."""
        self.losses -= 1
        self.online = False
        lost = [Settle(None) if kind == "settled" else what for kind, what, _ in self.replies if kind != "awk"]
        for kind, what, count in self.replies:
            if kind == "fetched":
                self.ready[what.queue] += count  # their leases run out
        self.answers += [("failed", what, 0) for what in [*self.asked, *lost] if isinstance(what, Sleep)]
        self.asked = [what for what in [*lost, *self.asked] if not isinstance(what, Sleep)]
        self.replies.clear()
        self.sleeping.clear()
        self.planner.lost()
        self.ask()

    def reconnect(self) -> None:
        self.online = True
        self.planner.connected()
        self.ask()

    def ask(self) -> None:
        requests = self.planner.next_requests()
        assert self.online or not requests, "asked without a connection"
        assert not (requests and self.planner._closed), "asked after it was closed"
        self.asked += requests

    # What must hold -------------------------------------------------------------------------------------

    def check(self, *, room: int) -> None:
        told = [*self.asked, *(what for kind, what, _ in [*self.replies, *self.answers] if kind != "awk")]
        under_way = [what.queue for what in told if not isinstance(what, Settle)]
        assert len(under_way) == len(set(under_way)), "two requests for one queue"
        assert self.held <= room, "more than there is room for"
        assert self.limit.taken <= self.limit._limit, "more than the limit"
        if self.ended:
            assert self.holds_nothing(), "ended while something was held"
            assert self.limit.is_reached or not any(isinstance(what, Fetch) for what in told), "ended while it asked"

    def stuck_before_work(self) -> bool:
        return any(self.ready.values()) and not self.planner._closed


def explore(start: World, *, room: int) -> int:
    """Visit every state that can be reached; return how many there are."""
    start.reconnect()
    seen = {start.key()}
    line = [start]
    while line:
        world = line.pop()
        world.check(room=room)
        if world.ended and world.drain and not world.limit.is_reached and not world.to_publish:
            assert not any(world.ready.values()), f"it ended, and left some: {world}"
        inner = list(world.inner_steps())
        if not inner:
            assert not world.stuck_before_work(), f"messages wait and nobody asks: {world}"
            assert world.ended or not (world.drain or world.limit.is_reached), f"it is done, and does not end: {world}"
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
        pytest.param(("a", "b"), 2, 2, 0, 1, 1, marks=pytest.mark.long),
    ],
)
def test_no_message_waits_for_a_worker_that_has_room(
    queues: tuple[str, ...], slots: int, to_publish: int, losses: int, steals: int, closes: int
) -> None:
    world = World(FetchPlanner(queues, slots=slots), queues, to_publish, losses, steals, closes)

    states = explore(world, room=slots)

    assert states > 100


@pytest.mark.parametrize(
    ("queues", "slots", "ready", "losses", "steals", "backs", "limit"),
    [
        (("a",), 1, 2, 1, 1, 1, None),
        (("a",), 2, 3, 0, 1, 2, None),
        (("a",), 2, 3, 1, 0, 1, 2),
        (("a", "b"), 1, 1, 1, 0, 1, None),
        pytest.param(("a", "b"), 1, 2, 0, 0, 2, None, marks=pytest.mark.long),
        (("a", "b"), 2, 3, 0, 1, 1, 2),
    ],
)
def test_a_drain_ends_when_nothing_is_left_and_not_sooner(
    queues: tuple[str, ...], slots: int, ready: int, losses: int, steals: int, backs: int, limit: int | None
) -> None:
    limit = MessageLimit(limit)
    world = World(
        FetchPlanner(queues, slots=slots, limit=limit), queues, 0, losses, steals,
        limit=limit, drain=True, backs=backs, ready={queues[-1]: ready},
    )  # fmt: skip

    states = explore(world, room=slots)

    assert states > 100


@pytest.mark.parametrize("queues", [("a",), ("a", "b")])
def test_a_limit_is_reached_and_never_passed(queues: tuple[str, ...]) -> None:
    limit = MessageLimit(2)
    world = World(FetchPlanner(queues, slots=2, limit=limit), queues, 3, losses=2 - len(queues), steals=0, limit=limit)

    states = explore(world, room=2)

    assert states > 100


def test_what_was_not_tried_is_not_counted() -> None:
    limit = MessageLimit(2)
    planner = FetchPlanner(["a"], slots=4, limit=limit)
    planner.connected()
    assert planner.next_requests() == [Fetch("a", 2)]
    planner.fetched(Fetch("a", 2), 2)
    assert planner.next_requests() == []

    planner.released(1)
    limit.untried(1)

    assert not limit.is_reached
    assert planner.next_requests() == [Fetch("a", 1)]


def about_to_sleep(slots: int) -> tuple[FetchPlanner, Sleep]:
    """Return a pool that has found nothing, and what it says of that."""
    planner = FetchPlanner(["a"], slots=slots)
    planner.connected()
    (fetch,) = planner.next_requests()
    assert isinstance(fetch, Fetch)
    planner.fetched(fetch, 0)
    (sleep,) = planner.next_requests()
    assert isinstance(sleep, Sleep)
    return planner, sleep


def test_a_worker_with_nothing_to_do_says_nothing_more() -> None:
    planner, sleep = about_to_sleep(slots=2)

    planner.slept(sleep)

    assert planner.next_requests() == []


def test_an_answer_of_an_older_connection_does_not_put_it_to_sleep() -> None:
    planner, sleep = about_to_sleep(slots=1)
    planner.lost()
    planner.connected()

    planner.slept(sleep)

    assert planner.next_requests() == [Fetch("a", 1)]


def test_queues_take_turns() -> None:
    planner = FetchPlanner(["a", "b"], slots=4)
    planner.connected()
    order = []

    for _ in range(4):
        (fetch,) = planner.next_requests()
        assert isinstance(fetch, Fetch)
        order.append(fetch.queue)
        planner.fetched(fetch, 4)
        planner.released(4)

    assert order == ["a", "b", "a", "b"]


def test_what_is_ahead_is_asked_for_by_halves_and_not_one_by_one() -> None:
    planner = FetchPlanner(["a"], slots=2)
    planner.connected()
    (fetch,) = planner.next_requests()
    assert isinstance(fetch, Fetch)
    planner.fetched(fetch, 2)
    planner.set_prefetch(8)
    more = Fetch("a", 8)
    assert planner.next_requests() == [more]
    planner.fetched(more, 8)

    counts = []
    for _ in range(5):
        planner.released(1)
        counts.append(planner.next_requests())

    assert counts == [[], [], [], [], [Fetch("a", 5)]]


def test_a_reach_beyond_one_fetch_still_asks() -> None:
    planner = FetchPlanner(["a"], slots=64)
    planner.set_prefetch(4096)

    planner.connected()

    assert planner.next_requests() == [Fetch("a", 1000)]
