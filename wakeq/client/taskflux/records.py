"""What a TaskFlux client hands to its user: plain data."""

from dataclasses import dataclass

from wakeq.protocol.errors import Refused, WakeqError


@dataclass(frozen=True, slots=True)
class Record:
    """What was taken from a queue.  Only servers of the dialect `csharp` tell the id."""

    key: int
    payload: bytes
    id: int = 0


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue of a list: how many records, and its policies in the server's words."""

    count: int
    policies: dict[str, str]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes by their ids, and which of them leads and answered; None if nobody leads."""

    addresses: list[str]
    leader: int | None
    answered: int


class NotAllEnqueued(Refused):
    """Some of many records were refused; the others are stored.  `refusals` has the error of each by its place."""

    def __init__(self, refusals: dict[int, WakeqError], count: int) -> None:
        place, error = next(iter(refusals.items()))
        super().__init__(f"{len(refusals)} of {count} records were not stored; the first was number {place}: {error}")
        self.refusals = refusals
