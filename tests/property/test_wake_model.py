"""The wake contract: no order of events leaves a message available while a subscribed worker sleeps un-woken.

The small model is exhaustive: two workers, two messages, and every step that concerns waking, applied in every state
that can be reached, until there are no new states.  It drives the real processes; only states are told apart here.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.brokers.by_hand import Json
from tests.helpers.disks.memory_folder import memory_folder

STEP_S = 5.0  # the timeout of a message, its delay, and the time that a woken worker is counted on
WORKERS = 2
Q = "q"
STATES_MIN = 100
STATES_MAX = 20_000
STEPS_MAX = 200_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with memory_folder() as directory:
        made = Broker(directory, flush_after_ms=1_000_000_000)
        yield made
        made.close()


class World:
    """One run: a queue of its own, two subscribed workers, a publisher; what happened so far is in the processes."""

    numbers = itertools.count()

    def __init__(self, broker: Broker, policies: Json, messages: int) -> None:
        self.broker = broker
        self.messages = messages
        self.sleeps = ["islp", "islp-ready"] if policies["wake"] == "sleeper" else ["islp"]
        broker.clients.clear()
        self.name = f"{Q}{next(self.numbers)}"
        self.publisher = broker.client()
        self.workers = [broker.client() for _ in range(WORKERS)]
        self.published = 0
        self.held: list[set[str]] = [set() for _ in range(WORKERS)]  # uids
        assert self.publisher.call("CREATE", self.name, **policies)["cmd"] == "okcreate"
        for worker in self.workers:
            worker.call("SUB", self.name)

    def steps(self) -> list[str]:
        """Return what can happen next."""
        found = ["time"]
        if self.published < self.messages:
            found += ["pub"] if self.published else ["pub", "pub delayed"]
        for place, worker in enumerate(self.workers):
            if worker.alive:
                found += [f"fet {place}", f"gone {place}"]
                found += [f"{word} {place}" for word in self.sleeps]
                found += [f"ack {place}"] if self.held[place] else []
        return found

    def do(self, step: str) -> None:
        """Let it happen, and come to rest."""
        self.begin(step)
        self.rest()

    def begin(self, step: str) -> None:
        """Let it happen; nobody has been served yet."""
        word, _, place = step.partition(" ")
        match word:
            case "time":
                self.broker.advance(STEP_S)
            case "pub":
                delay = {"delay": int(STEP_S)} if place else {}
                self.published += 1
                self.publisher.send({"cmd": "PUB", "qname": self.name, "message": "m", "timeout": 5, **delay})
            case _:
                self._act(word, int(place))

    def _act(self, word: str, place: int) -> None:
        worker, held = self.workers[place], self.held[place]
        match word:
            case "gone":
                worker.alive = False
                worker.process.stop()
            case "fet" | "islp":
                worker.send({"cmd": word.upper(), "qname": self.name})
            case "islp-ready":
                worker.send({"cmd": "ISLP", "qname": self.name, "wake": "ready"})
            case "ack":
                uid = min(held)
                held.remove(uid)
                worker.send({"cmd": "ACK", "qname": self.name, "uid": uid})

    def rest(self) -> None:
        self.broker.settle()
        for worker, held in zip(self.workers, self.held, strict=True):
            for reply in worker.take():
                if reply["cmd"] == "msg":
                    held.add(reply["uid"])
        ledger = self.broker.queue(self.name).ledger
        for worker, held in zip(self.workers, self.held, strict=True):
            gone = {uid for uid in held if not ledger.columns.lives(int(uid[-1]))}
            held -= gone if worker.alive else set(held)  # nobody can say anything about these any more
        self.broker.check(self.name)

    def state(self) -> str:
        """Return all that the future can depend on, times relative to now; workers are alike, so put them in order."""
        here = self._state()
        self._swap()
        there = self._state()
        if here <= there:
            self._swap()
        return min(here, there)

    def _swap(self) -> None:
        self.workers.reverse()
        self.held.reverse()

    def _state(self) -> str:
        workers = self.workers
        process, now_ms = self.broker.queue(self.name), self.broker.now_ms()
        leases, ledger = process.leases, process.ledger
        assert leases is not None
        place: dict[Any, int] = {worker.process: i for i, worker in enumerate(workers)}
        messages = []
        for number in range(1, self.published + 1):
            held = leases.held.get(number)
            due_ms = max(0, ledger.due_of(number) - now_ms) if ledger.columns.lives(number) else -1
            messages.append((due_ms, held and (held.until_ms - now_ms, place.get(held.holder))))
        asleep = [place[s] for s in leases.audience.sleepers if s in place]
        always_woken = sorted(place[s] for s in leases.audience.always_woken if s in place)
        woken = [max(0, leases.audience.woken.get(w.process, 0) - now_ms) for w in workers]
        known = [
            (w.alive, self.name in w.asleep, self.name in w.choosy, w.woken_ms.get(self.name, 0) > now_ms - 5_000)
            for w in workers
        ]
        held_by = [sorted(uid[-1] for uid in held) for held in self.held]
        return repr((messages, asleep, always_woken, woken, known, held_by, leases.next_numbers(self.messages)))

    def end(self) -> None:
        for client in self.broker.clients:
            client.process.stop()
        self.broker.settle()


class Explorer:
    """Walks through all states, always to the nearest step that was not tried yet."""

    def __init__(self, broker: Broker, policies: Json, messages: int) -> None:
        self.broker = broker
        self.policies = policies
        self.messages = messages
        self.leads_to: dict[str, dict[str, str]] = {}
        self.untried: dict[str, list[str]] = {}
        self.done = 0

    def explore(self) -> None:
        while True:
            world = World(self.broker, self.policies, self.messages)
            state = self._meet(world)
            path: list[str] = []
            while (way := self._way_from(state)) is not None:
                for step in way:
                    if step not in world.steps():
                        break  # leases that end together come back in an order that a state does not tell
                    path.append(step)
                    state = self._try(world, state, step, path)
            world.end()
            if not path:
                return

    def _meet(self, world: World) -> str:
        state = world.state()
        if state not in self.untried:
            self.untried[state] = world.steps()
            self.leads_to[state] = {}
            assert len(self.untried) < STATES_MAX, "the model is meant to be small"
        return state

    def _try(self, world: World, state: str, step: str, path: list[str]) -> str:
        try:
            world.do(step)
        except AssertionError as error:
            raise AssertionError(f"after {path}: {error}") from error
        after = self._meet(world)
        self.leads_to[state][step] = after
        self.done += 1
        assert self.done < STEPS_MAX, "the walk leads nowhere"
        if step in self.untried[state]:
            self.untried[state].remove(step)
        return after

    def _way_from(self, start: str) -> list[str] | None:
        """Return the steps to the nearest untried one, and that one; None if there is none from here."""
        came: dict[str, tuple[str, str]] = {}
        todo = deque([start])
        while todo:
            state = todo.popleft()
            if self.untried[state]:
                way = [self.untried[state][-1]]
                while state != start:
                    state, step = came[state]
                    way.append(step)
                return way[::-1]
            for step, after in self.leads_to[state].items():
                if after not in came and after != start:
                    came[after] = (state, step)
                    todo.append(after)
        return None


READY: Json = {"wake": "ready"}
SLEEPER: Json = {"wake": "sleeper"}
ALL_RELEASE: Json = {"wake": "all", "on_disconnect": "release"}


@pytest.mark.parametrize(
    ("policies", "messages", "states_min"),
    [
        pytest.param(READY, 1, STATES_MIN, id="ready-1"),
        pytest.param(SLEEPER, 1, 2 * STATES_MIN, id="sleeper-1", marks=pytest.mark.long),
        pytest.param(READY, 2, 5 * STATES_MIN, id="ready-2", marks=pytest.mark.long),
        pytest.param(ALL_RELEASE, 2, 5 * STATES_MIN, id="all-release-2", marks=pytest.mark.long),
    ],
)
def test_message_never_waits_beside_a_sleeping_worker_in_any_order_of_events(
    broker: Broker, policies: Json, messages: int, states_min: int
) -> None:
    explorer = Explorer(broker, policies, messages)

    explorer.explore()

    assert len(explorer.untried) > states_min
    assert not any(explorer.untried.values())
