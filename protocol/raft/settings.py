"""Settings: who a node of the cluster is, and by which spans and sizes all of them go.  Plain data."""

import msgspec

from wakeq.protocol.raft.progress import Window


class Me(msgspec.Struct, frozen=True):
    """Who this node is: its number, its disk (drawn when that was made), and its life (each has a higher number)."""

    node_id: int
    disk_id: int
    incarnation: int


class Settings(msgspec.Struct, frozen=True):
    """The same on every node.  A heartbeat goes out at least five times within an election timeout."""

    election_ms: int = 1_000  # nobody is voted for so long after a leader was heard; elections begin up to twice later
    heartbeat_ms: int = 100
    window: Window = Window()

    def __post_init__(self) -> None:
        assert 0 < 5 * self.heartbeat_ms <= self.election_ms, "heartbeats too seldom: one lost would end a lease"
