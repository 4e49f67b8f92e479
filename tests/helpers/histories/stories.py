"""Stories: a history sorted by task, each with everything that the driver knows of it.

    events --> Stories(by_task, crashes, fetches whose answer never came)

It only sorts: what is right and wrong is the checker's.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from math import inf

from tests.helpers.histories.history import Event


@dataclass(slots=True)
class Operation:
    """A request and what came of it.  `end_s` is infinite while the outcome is unknown."""

    start: Event
    outcome: str = "unknown"
    end_s: float = inf
    uid: str = ""
    known: bool = True

    @property
    def start_s(self) -> float:
        return self.start.at_s

    @property
    def possible(self) -> bool:
        """Whether it may have taken effect."""
        return self.outcome != "fail"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message in the answer to one fetch."""

    start_s: float
    end_s: float
    op: int
    queue: str
    uid: str
    lease: str
    error_count: int
    digest: int


@dataclass(slots=True)
class Story:
    """Everything that the driver knows of one task."""

    task: str
    publishes: list[Operation] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    dead: list[Delivery] = field(default_factory=list)
    acks: list[Operation] = field(default_factory=list)
    nacks: list[Operation] = field(default_factory=list)
    touches: list[Operation] = field(default_factory=list)
    remains: bool = False

    @property
    def plan(self) -> Event:
        return self.publishes[0].start

    @property
    def stored_s(self) -> float:
        """When its publish was confirmed first; infinite if never."""
        return min((publish.end_s for publish in self.publishes if publish.outcome == "ok"), default=inf)

    def acks_of(self, queue: str) -> list[Operation]:
        """Return the acks that named this queue; one that named another is no ack of this message."""
        return [ack for ack in self.acks if ack.start.queue == queue]


class Stories:
    """All that a history says, sorted by task."""

    def __init__(self, events: list[Event]) -> None:
        self.by_task: dict[str, Story] = {}
        self.crashes_s: list[float] = []
        self.lost_fetches_s: dict[str, list[float]] = defaultdict(list)  # by queue: fetches whose answer never came
        self.answers: dict[int, list[str]] = defaultdict(list)  # by fetch: the tasks in the order of the answer
        self.last_s = max((event.at_s for event in events), default=0.0)
        self._read(events)

    def crashed_in(self, from_s: float, to_s: float) -> bool:
        place = bisect_left(self.crashes_s, from_s)
        return place < len(self.crashes_s) and self.crashes_s[place] <= to_s

    def lost_fetches_until(self, queue: str, at_s: float) -> int:
        return bisect_right(self.lost_fetches_s.get(queue, []), at_s)

    def batches_seen(self) -> set[int]:
        """Return the batches of which at least one message was certainly stored."""
        return {
            story.plan.batch
            for story in self.by_task.values()
            if story.publishes and story.plan.batch and (story.deliveries or story.dead or story.stored_s < inf)
        }

    def _read(self, events: list[Event]) -> None:
        operations: dict[int, Operation] = {}
        for event in events:
            if event.kind == "crash":
                self.crashes_s.append(event.at_s)
            elif event.kind == "remain":
                self._story(event.task).remains = True
            elif event.phase == "invoke":
                operations[event.op] = operation = Operation(event)
                self._file(operation)
        for event in events:
            if event.phase != "invoke" and event.op in operations:
                self._finish(operations[event.op], event)
        for operation in operations.values():
            if operation.start.kind == "deliver" and operation.outcome == "unknown":
                self.lost_fetches_s[operation.start.queue].append(operation.start_s)
        self.crashes_s.sort()
        for starts_s in self.lost_fetches_s.values():
            starts_s.sort()
        for story in self.by_task.values():
            self._part_dead_letters(story)

    def _story(self, task: str) -> Story:
        story = self.by_task.get(task)
        if story is None:
            story = self.by_task[task] = Story(task)
        return story

    def _file(self, operation: Operation) -> None:
        match operation.start.kind:
            case "publish":
                self._story(operation.start.task).publishes.append(operation)
            case "ack":
                self._story(operation.start.task).acks.append(operation)
            case "nack":
                self._story(operation.start.task).nacks.append(operation)
            case "touch":
                self._story(operation.start.task).touches.append(operation)
            case _:
                pass

    def _finish(self, operation: Operation, event: Event) -> None:
        operation.outcome = event.phase
        if event.phase == "unknown":
            return
        operation.end_s = event.at_s
        operation.uid, operation.known = event.uid, event.known
        if event.kind == "deliver" and event.phase == "ok":
            self.answers[event.op].append(event.task)
            self._story(event.task).deliveries.append(
                Delivery(
                    operation.start_s,
                    event.at_s,
                    event.op,
                    operation.start.queue,
                    event.uid,
                    event.lease,
                    event.error_count,
                    event.digest,
                )
            )

    def _part_dead_letters(self, story: Story) -> None:
        story.deliveries.sort(key=lambda delivery: (delivery.end_s, delivery.start_s))
        if story.publishes and story.plan.dead_letter:
            name = story.plan.dead_letter
            story.dead = [delivery for delivery in story.deliveries if delivery.queue == name]
            story.deliveries = [delivery for delivery in story.deliveries if delivery.queue != name]
