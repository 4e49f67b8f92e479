"""Catalog: which queues exist, with which policies. Only committed entries change it, so it is the same on every node.

Policies are kept in the words of the CREATE command (seconds, bytes, counts): a user reads what a user has set.
"""

from typing import Literal

import msgspec

from wakeq.protocol.errors import BadField, BadName
from wakeq.protocol.names import DEAD_SUFFIX, NAME_BYTES_MAX, check_name

TIMEOUT_S = 60
# Of a timeout or retry: a year, as for a delay.
SECONDS_MAX = 365 * 86_400


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a message waits after a failure before it is delivered again."""

    backoff: Literal["fixed", "exponential"] = "fixed"
    base: float = 0.0
    max: float = 3600.0
    jitter: float = 0.0

    def after_ms(self, failures: int, chance: float) -> int:
        """Return the wait after this many failed deliveries; `chance` in [0, 1) is drawn by the proposer."""
        wait_s = self.base
        if self.backoff == "exponential":
            wait_s = min(self.max, self.base * 2.0 ** min(failures - 1, 60))
        wait_s = min(wait_s, self.max) * (1.0 - self.jitter * chance)
        return int(wait_s * 1000)


class Policies(msgspec.Struct, frozen=True, omit_defaults=True):
    """The policies of one queue.  None means no limit."""

    max_size: int | None = None
    max_bytes: int | None = None
    max_message_size: int | None = None
    priority_min: int | None = None
    priority_max: int | None = None
    structure: Literal["H4", "QA"] = "H4"
    timeout: int = TIMEOUT_S
    # With 0 there is no limit.
    max_deliveries: int = 0
    # With None, the queue's own name with `.dead`.
    dead_letter: str | None = None
    retry: Retry = Retry()
    wake: Literal["all", "ready", "sleeper"] = "sleeper"
    lease: Literal["fast", "strict"] = "fast"
    on_disconnect: Literal["keep", "release"] = "keep"

    @property
    def unlimited(self) -> bool:
        """Whether a publish needs no check at all."""
        return (
            self.max_size is None
            and self.max_bytes is None
            and self.max_message_size is None
            and self.priority_min is None
            and self.priority_max is None
        )


FIELDS = Policies.__struct_fields__


def as_dict(policies: Policies) -> dict[str, object]:
    """Return all policies by name, including defaults."""
    fields: dict[str, object] = {name: getattr(policies, name) for name in FIELDS}
    return fields | {"retry": msgspec.structs.asdict(policies.retry)}


def changed(policies: Policies, changes: dict[str, object]) -> Policies:
    """Return the policies with these changes; raise BadField if the result is not valid."""
    fields = {name: value for name, value in as_dict(policies).items() if changes.get(name, value) is not None}
    fields |= {name: value for name, value in changes.items() if value is not None}
    for name in changes:
        if name not in FIELDS:
            raise BadField(f"{name} is not a policy; known are {', '.join(FIELDS)}")
    try:
        return msgspec.convert(fields, Policies)
    except msgspec.ValidationError as error:
        raise BadField(f"policies: {error}") from None


def check(queue: str, policies: Policies) -> None:
    """Raise BadField for policies that contradict each other; the order is that of the TaskFlux specification."""
    low, high = policies.priority_min, policies.priority_max
    if policies.structure == "QA" and (low is None or high is None):
        raise BadField("structure QA needs priority_min and priority_max")
    for name in ("priority_min", "priority_max"):
        value = getattr(policies, name)
        if value is not None and not -(1 << 63) <= value < 1 << 63:
            raise BadField(f"{name} is {value}, it must be a number of 64 bits")
    if low is not None and high is not None and low > high:
        raise BadField(f"priority_min {low} is above priority_max {high}")
    for name in ("max_size", "max_bytes", "max_message_size"):
        value = getattr(policies, name)
        if value is not None and value < 0:
            raise BadField(f"{name} is {value}, it must be 0 or more (leave it out for no limit)")
    _check_deliveries(queue, policies)


def _check_deliveries(queue: str, policies: Policies) -> None:
    retry = policies.retry
    if not 1 <= policies.timeout <= SECONDS_MAX:
        raise BadField(f"timeout is {policies.timeout}, it must be 1 to {SECONDS_MAX} seconds")
    if not 0.0 <= retry.jitter <= 1.0:
        raise BadField(f"retry.jitter is {retry.jitter}, it must be within 0 and 1")
    if not (0 <= retry.base <= SECONDS_MAX and 0 <= retry.max <= SECONDS_MAX):
        raise BadField(f"retry.base and retry.max are seconds, 0 to {SECONDS_MAX}")
    if policies.max_deliveries < 0:
        raise BadField(f"max_deliveries is {policies.max_deliveries}, it must be 0 (no limit) or more")
    if policies.dead_letter is not None:
        _check_dead_letter(queue, policies.dead_letter)
    if policies.max_deliveries and len(queue + DEAD_SUFFIX) > NAME_BYTES_MAX and policies.dead_letter is None:
        raise BadField(f"the name with {DEAD_SUFFIX} would be longer than {NAME_BYTES_MAX}; give dead_letter a name")


def _check_dead_letter(queue: str, name: str) -> None:
    if name == queue:
        raise BadField("dead_letter names the queue itself")
    try:
        check_name(name)
    except BadName as error:
        raise BadField(f"dead_letter: {error}") from None


def dead_letter_of(queue: str, policies: Policies) -> str:
    """Return the queue for the dead letters of this one."""
    if policies.dead_letter is not None:
        return policies.dead_letter
    return (queue or "default") + DEAD_SUFFIX


class QueueRecord(msgspec.Struct, frozen=True):
    """One queue of the catalog."""

    name: str
    # The index of the entry that made this incarnation.
    id: int
    policies: Policies
    created_ms: int


class Catalog:
    """The queues by name.  The default queue, named by the empty text, always exists."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueRecord] = {}
        # Queues that policies name for dead letters, and how many policies do.
        self._letter_queues: dict[str, int] = {}

    def find(self, name: str) -> QueueRecord | None:
        return self.queues.get(name)

    def put(self, name: str, queue_id: int, policies: Policies, at_ms: int) -> QueueRecord:
        record = QueueRecord(name, queue_id, policies, at_ms)
        before = self.queues.get(name)
        if before is not None:
            self._count_letters(before, -1)
        self.queues[name] = record
        self._count_letters(record, 1)
        return record

    def remove(self, name: str) -> None:
        self._count_letters(self.queues.pop(name), -1)

    def _count_letters(self, record: QueueRecord, more: int) -> None:
        target = record.policies.dead_letter
        if target is not None:
            count = self._letter_queues.get(target, 0) + more
            if count:
                self._letter_queues[target] = count
            else:
                del self._letter_queues[target]

    def is_dead_letter(self, name: str) -> bool:
        """Whether dead letters of other queues go to this one; the usual name is enough, as its origin may be gone."""
        return name in self._letter_queues or name.endswith(DEAD_SUFFIX)
