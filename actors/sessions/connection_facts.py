"""ConnectionFacts: what an operator sees of a connection.  Pure; reads what it is given."""

from itertools import islice
from typing import Any

from wakeq.actors.runtime import Process
from wakeq.actors.sessions.door import DOOR_MONIQUE, DOOR_TASKFLUX, DOOR_WORKER_TCP, DOOR_WORKER_WS, Door

DOOR_NAMES = {
    DOOR_WORKER_TCP: "worker",
    DOOR_WORKER_WS: "websocket",
    DOOR_TASKFLUX: "taskflux",
    DOOR_MONIQUE: "monique",
}
QUEUES_SHOWN_MAX = 20


def describe(process: Process, worker: int, door: Door[Any], *, in_flight: int) -> dict[str, Any]:
    """Return who is connected, and to which queues it has subscribed."""
    groups = process.runtime.groups.groups_of(process)
    queues = [group[1] for group in groups if type(group) is tuple and group[0] == "subscribers"]
    return {
        "id": worker,
        "door": DOOR_NAMES.get(door.kind, str(door.kind)),
        "peer": door.peer,
        "in_flight": in_flight,
        "subscriptions": len(queues),
        "queues": list(islice(queues, QUEUES_SHOWN_MAX)),
    }
