"""The results of a TaskFlux client: plain data."""

from dataclasses import dataclass

from wakeq.protocol.errors import Refused, WakeqError


@dataclass(frozen=True, slots=True)
class Record:
    """A record from a queue. Only servers with the dialect `csharp` send its id."""

    key: int
    payload: bytes
    id: int = 0


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue: the number of its records, and its policies in the server's words."""

    count: int
    policies: dict[str, str]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the nodes by id, the id of the leader (None if there is none), and of the node that answered."""

    addresses: list[str]
    leader: int | None
    answered: int


class NotAllEnqueued(Refused):
    """Some of the records were refused; the others are stored. `refusals` maps the index of a record to its error."""

    def __init__(self, refusals: dict[int, WakeqError], count: int) -> None:
        index, error = next(iter(refusals.items()))
        super().__init__(f"{len(refusals)} of {count} records were not stored; the first was number {index}: {error}")
        self.refusals = refusals
