"""Settings: the identity of a node, and the time spans and sizes that all nodes share.  Plain data."""

import msgspec

from wakeq.protocol.raft.progress import Window


class Me(msgspec.Struct, frozen=True):
    """This node: its number, its disk (a random number, drawn once), and its incarnation (higher at each start)."""

    node_id: int
    disk_id: int
    incarnation: int


class Settings(msgspec.Struct, frozen=True):
    """The same on every node.  At least five heartbeats are sent within an election timeout."""

    # No vote is granted for this long after a leader was heard; a follower campaigns after once to twice this time.
    election_ms: int = 1_000
    heartbeat_ms: int = 100
    window: Window = Window()

    def __post_init__(self) -> None:
        assert 0 < 5 * self.heartbeat_ms <= self.election_ms, "heartbeats too seldom: one lost would end a lease"
