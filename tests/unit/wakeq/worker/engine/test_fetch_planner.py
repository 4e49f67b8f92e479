"""Tests of FetchPlanner: it misses no message, and knows when all queues are empty. A model visits every interleaving
of answers, wake-ups, lost connections, stops and other workers.

The model consists of the broker by its contract (docs/internals/flow.md, "The wake contract"), a connection that may
break with any message on its way, and a client that processes wake-ups at once and answers a little later.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from wakeq.worker.engine.fetch_planner import Fetch, FetchPlanner, MessageLimit, Request, Sleep


@dataclass(frozen=True)
class OutcomeReport:
    """The outcome of a message: it returned to this queue, a follow-up arrived on it, or it is gone."""

    back: str | None


@dataclass
class World:
    """One state of worker, broker and connection. With `drain` or a limit the worker ends by itself."""

    planner: FetchPlanner
    queues: tuple[str, ...]
    to_publish: int
    losses: int
    steals: int
    closes: int = 0
    limit: MessageLimit = field(default_factory=MessageLimit)
    drain: bool = False
    # How often a message of this worker may return to a queue.
    backs: int = 0
    ready: dict[str, int] = field(default_factory=dict)
    sleeping: set[str] = field(default_factory=set)
    # Requests on their way to the broker.
    asked: list[Request | OutcomeReport] = field(default_factory=list)
    # Replies on their way to the client.
    replies: list[tuple[str, Any, int]] = field(default_factory=list)
    # Replies that have arrived while their tasks have not run.
    answers: list[tuple[str, Any, int]] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    held: int = 0
    online: bool = True
    ended: bool = False

    def key(self) -> Any:
        """Return a key that is equal for equal states."""
        planner = vars(self.planner) | {"_limit": None}
        world = vars(self) | {"planner": None, "limit": None}
        return repr([list(facts.values()) for facts in (planner, vars(self.limit), world)])

    # Steps ----------------------------------------------------------------------------------------------

    def inner_steps(self) -> Iterator["World"]:
        """Yield the steps that need no cause from outside; a world without any is at rest."""
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
        """Yield the steps of publishers, other workers and faults, each a bounded number of times."""
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
        # This takes half as long as deepcopy.
        world: World = pickle.loads(pickle.dumps(self, -1))
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
        """Wake sleepers while messages are ready; this is level-triggered."""
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
        elif isinstance(request, OutcomeReport):
            if request.back is not None:
                self.ready[request.back] = self.ready.get(request.back, 0) + 1
            self.replies.append(("settled", request, 0))
        else:
            self.sleeping.add(request.queue)
            self.replies.append(("slept", request, 0))

    # The client -----------------------------------------------------------------------------------------

    def client_hears(self) -> None:
        kind, request, count = self.replies.pop(0)
        if kind == "awk":
            self.planner.woken(request)
            self.ask()
        else:
            self.answers.append((kind, request, count))

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
            self.asked.append(OutcomeReport(back))
        self.ask()

    def holds_nothing(self) -> bool:
        """Return whether no message is held and all outcomes are confirmed."""
        under_way = [*self.asked, *(request for _, request, _ in [*self.replies, *self.answers])]
        return not self.held and not any(isinstance(request, OutcomeReport) for request in under_way)

    def end_if_done(self) -> None:
        if (self.limit.is_reached or (self.drain and self.planner.all_empty)) and self.holds_nothing():
            self.planner.close()
            self.ended = True

    def close(self) -> None:
        self.closes -= 1
        self.planner.close()

    def lose(self) -> None:
        """Lose the connection and everything on its way. The client repeats fetches, and a Sleep has failed."""
        self.losses -= 1
        self.online = False
        lost = [
            OutcomeReport(None) if kind == "settled" else request for kind, request, _ in self.replies if kind != "awk"
        ]
        for kind, request, count in self.replies:
            if kind == "fetched":
                # Their leases time out.
                self.ready[request.queue] += count
        self.answers += [("failed", request, 0) for request in [*self.asked, *lost] if isinstance(request, Sleep)]
        self.asked = [request for request in [*lost, *self.asked] if not isinstance(request, Sleep)]
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

    # Invariants -----------------------------------------------------------------------------------------

    def check(self, *, room: int) -> None:
        outstanding = [
            *self.asked,
            *(request for kind, request, _ in [*self.replies, *self.answers] if kind != "awk"),
        ]
        under_way = [request.queue for request in outstanding if not isinstance(request, OutcomeReport)]
        assert len(under_way) == len(set(under_way)), "two requests for one queue"
        assert self.held <= room, "more than there is room for"
        assert self.limit.taken <= self.limit._limit, "more than the limit"
        if self.ended:
            assert self.holds_nothing(), "ended while something was held"
            assert self.limit.is_reached or not any(isinstance(request, Fetch) for request in outstanding), (
                "ended while it asked"
            )

    def stuck_before_work(self) -> bool:
        return any(self.ready.values()) and not self.planner._closed


def explore(start: World, *, room: int) -> int:
    """Visit every state that can be reached; return the number of states."""
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
def test_no_message_waits_while_the_worker_has_room(
    queues: tuple[str, ...], slots: int, to_publish: int, losses: int, steals: int, closes: int
) -> None:
    world = World(FetchPlanner(queues, slots=slots), queues, to_publish, losses, steals, closes)

    states = explore(world, room=slots)

    assert states > 100


@pytest.mark.parametrize(
    ("queues", "slots", "ready", "losses", "steals", "backs", "limit"),
    [
        (("a",), 1, 2, 1, 1, 1, None),
        pytest.param(("a",), 2, 3, 0, 1, 2, None, marks=pytest.mark.long),
        (("a",), 2, 3, 1, 0, 1, 2),
        pytest.param(("a", "b"), 1, 1, 1, 0, 1, None, marks=pytest.mark.long),
        pytest.param(("a", "b"), 1, 2, 0, 0, 2, None, marks=pytest.mark.long),
        (("a", "b"), 2, 3, 0, 1, 1, 2),
    ],
)
def test_drain_ends_exactly_when_nothing_is_left(
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
def test_limit_is_reached_and_never_exceeded(queues: tuple[str, ...]) -> None:
    limit = MessageLimit(2)
    world = World(FetchPlanner(queues, slots=2, limit=limit), queues, 3, losses=2 - len(queues), steals=0, limit=limit)

    states = explore(world, room=2)

    assert states > 100


def test_untried_messages_do_not_count() -> None:
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
    """Return a planner that has found its queue empty, and its Sleep."""
    planner = FetchPlanner(["a"], slots=slots)
    planner.connected()
    (fetch,) = planner.next_requests()
    assert isinstance(fetch, Fetch)
    planner.fetched(fetch, 0)
    (sleep,) = planner.next_requests()
    assert isinstance(sleep, Sleep)
    return planner, sleep


def test_idle_worker_sends_no_requests() -> None:
    planner, sleep = about_to_sleep(slots=2)

    planner.slept(sleep)

    assert planner.next_requests() == []


def test_sleep_answer_of_an_older_connection_does_not_count() -> None:
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


def test_prefetch_is_refilled_when_half_is_used() -> None:
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


def test_prefetch_larger_than_one_fetch_still_fetches() -> None:
    planner = FetchPlanner(["a"], slots=64)
    planner.set_prefetch(4096)

    planner.connected()

    assert planner.next_requests() == [Fetch("a", 1000)]
